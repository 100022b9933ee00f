"""Pairs of requests that differ and must not be taken for each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from labcore.battery.interfaces import CacheClaims, Floats, Request

Pair = tuple[str, Request, Request]


def pairs(claims: CacheClaims, rng: np.random.Generator, scopes: bool = False) -> list[Pair]:
    """(what differs, first, second), in an order that does not depend on the draws. scopes: also pairs in which only the scope differs."""
    few = (
        rng.choice(claims.vocabulary, min(claims.vocabulary, 40), replace=False)
        if claims.vocabulary > 400
        else rng.permutation(claims.vocabulary)
    )
    ids = [int(t) for t in few if t != claims.placeholder]
    result = list(texts(claims, ids))
    tokens = tuple(int(t) for t in rng.choice(ids, 4))
    names = claims.adapters
    if names:
        one, other = names[0], names[-1]
        result.append(("adapter against none", Request(tokens, adapter=one), Request(tokens)))
        result.append(("none against adapter", Request(tokens), Request(tokens, adapter=other)))
        if one != other:
            result.append(("two adapters", Request(tokens, adapter=one), Request(tokens, adapter=other)))
        # The scope does not change an output; a key in which it stands for the adapter does.
        result.append(("adapter against scope of its name", Request(tokens, adapter=one), Request(tokens, scope=one)))
        result.append(("scope against adapter of its name", Request(tokens, scope=other), Request(tokens, adapter=other)))
        result.append(("adapter and scope swapped", Request(tokens, one, other), Request(tokens, other, one)))
    if scopes and claims.scopes:
        result.append(("two scopes", Request(tokens, "a"), Request(tokens, "b")))
        result.append(("scope against none", Request(tokens, "a"), Request(tokens)))
        result.append(("scopes that begin alike", Request(tokens, "tenant-1"), Request(tokens, "tenant-11")))
        result.append(("scopes in other case", Request(tokens, "tenant"), Request(tokens, "Tenant")))
        result.append(("a token in the scope", Request(tokens[1:], f"a{tokens[0]}"), Request(tokens, "a")))
    if claims.placeholder is not None:
        result += media(claims, tokens, rng)
    return result


def texts(claims: CacheClaims, ids: list[int]) -> Iterator[Pair]:
    """Prompts of other tokens. ids: distinct ones, shuffled."""
    a, b, c, d, e, f = ids[:6]
    base = (a, b, c, d)
    yield "first token", Request(base), Request((e, b, c, d))
    yield "middle token", Request(base), Request((a, b, e, d))
    yield "last token", Request(base), Request((a, b, c, e))
    yield "two tokens swapped", Request(base), Request((a, c, b, d))
    yield "the first tokens swapped", Request(base), Request((b, a, c, d))
    yield "first token missing", Request(base), Request(base[1:])
    yield "last token missing", Request(base), Request(base[:-1])
    yield "one token more", Request(base), Request((*base, e))
    yield "one token in front", Request(base), Request((e, *base))
    yield "a token repeated", Request((a, a, a, b)), Request((a, a, b))
    yield "same sum", Request((a, b, c, d)), Request((d, c, b, a))
    long = tuple(ids[i % len(ids)] for i in range(min(23, claims.longest)))
    if len(long) > 8:
        yield "first of many", Request(long), Request((f if long[0] != f else e, *long[1:]))
        yield "last but one of many", Request(long), Request((*long[:-2], long[-3], long[-1]))
        yield "same ends", Request(long), Request((*long[:3], *long[4:6], long[3], *long[6:]))
    if claims.vocabulary > 23 and claims.placeholder not in (1, 23, 12, 3):
        yield "same digits", Request((1, 23, a, b)), Request((12, 3, a, b))
    if claims.vocabulary > 13 and claims.placeholder not in (1, 11):
        yield "same digit, other count", Request((1, 11, a)), Request((11, 1, a))
    for bit in range((claims.vocabulary - 1).bit_length()):
        # An id and the same without one bit, as narrow integers and masks would confuse them.
        low = next((t for t in ids if not t >> bit & 1 and t | 1 << bit < claims.vocabulary and claims.placeholder != t | 1 << bit), None)
        if low is not None:
            yield f"bit {bit} of the first id", Request((low, a, b)), Request((low | 1 << bit, a, b))
            yield f"bit {bit} of a later id", Request((a, low, b)), Request((a, low | 1 << bit, b))


def media(claims: CacheClaims, tokens: tuple[int, ...], rng: np.random.Generator) -> Iterator[Pair]:
    """Prompts with other pictures."""
    hole = claims.placeholder
    assert hole is not None
    prompt = (tokens[0], hole, *tokens[1:])
    shapes, dtypes = claims.shapes, claims.dtypes
    base = draw(rng, shapes[0], dtypes[0])

    def pair(text: str, one: Floats, other: Floats) -> Pair:
        return text, Request(prompt, media=(one,)), Request(prompt, media=(other,))

    changed = base.copy()
    changed.flat[base.size // 2] += 1
    yield pair("one value of a picture", base, changed)
    last = base.copy()
    last.flat[-1] += 1
    yield pair("last value of a picture", base, last)
    first = base.copy()
    first.flat[0] += 1
    yield pair("first value of a picture", base, first)
    yield pair("another picture", base, draw(rng, shapes[0], dtypes[0]))
    yield pair("a picture's values turned about", base, np.ascontiguousarray(base[::-1]))
    for shape in shapes[1:]:
        if np.prod(shape) == base.size:
            yield pair(f"same bytes, shape {list(shape)}", base, base.reshape(shape))
    for dtype in dtypes[1:]:
        wide = draw(rng, shapes[0], "uint8" if np.dtype(dtype).itemsize == 1 else dtype)
        for other in dtypes:
            if other != dtype and np.dtype(other).itemsize == np.dtype(dtype).itemsize:
                yield pair(f"same bytes, {dtype} and {other}", wide.view(dtype), wide.view(other))
    two = draw(rng, shapes[0], dtypes[0])
    both = (hole, tokens[0], hole, tokens[1])
    yield "two pictures swapped", Request(both, media=(base, two)), Request(both, media=(two, base))
    yield "second of two pictures", Request(both, media=(base, two)), Request(both, media=(base, changed))
    yield "same picture twice", Request(both, media=(base, two)), Request(both, media=(base, base))
    yield "picture a token later", Request(prompt, media=(base,)), Request((*tokens[:2], hole, *tokens[2:]), media=(base,))


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Floats:
    """A picture, finite in every dtype of its width."""
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if np.dtype(dtype).itemsize == 4:
        return rng.standard_normal(shape).astype("float32").view(dtype)
    return rng.integers(0, 250, shape).astype(dtype)
