"""The auditor's attention by array sums against one written out with math.fsum."""

import math

import numpy as np

from audit.pages import attend as attend_rows
from audit.softmax import attend, partial, through, together

RNG = np.random.default_rng(17)
Q, K, V = RNG.normal(size=(2, 5, 7)), RNG.normal(size=(2, 301, 7)), RNG.normal(size=(2, 301, 3))


def written_out(q, k, v):
    """One query over keys [n, d] and values [n, e]."""
    scores = [math.fsum((q * key).tolist()) / math.sqrt(len(q)) for key in k]
    weights = [math.exp(score - max(scores)) for score in scores]
    return [math.fsum(w * x for w, x in zip(weights, column, strict=True)) / math.fsum(weights) for column in v.T.tolist()]


def test_queries_of_all_heads_are_each_query_alone():
    wanted = np.array([[written_out(q, k, v) for q in head] for head, k, v in zip(Q, K, V, strict=True)])
    assert np.abs(attend(Q, K, V) - wanted).max() < 1e-15


def test_what_is_not_seen_has_no_weight():
    seen = RNG.random((5, 301)) < 0.4
    wanted = [[written_out(q, k[row], v[row]) for q, row in zip(head, seen, strict=True)] for head, k, v in zip(Q, K, V, strict=True)]
    assert np.abs(attend(Q, K, V, seen) - np.array(wanted)).max() < 1e-15
    assert np.array_equal(attend(Q, np.where(seen[0][:, None], K, 9.0), V, seen)[:, 0], attend(Q, K, V, seen)[:, 0])


def test_parts_together_are_the_whole():
    parts = [partial(Q, K[:, start:stop] * 30, V[:, start:stop]) for start, stop in ((0, 2), (2, 97), (97, 301))]
    assert np.abs(together(*parts) - attend(Q, K * 30, V)).max() < 1e-14


def test_rows_through_a_matrix():
    matrix = RNG.normal(size=(2, 3, 4))
    wanted = [[[math.fsum((row * column).tolist()) for column in m.T] for row in rows] for rows, m in zip(V, matrix, strict=True)]
    assert np.abs(through(V, matrix) - np.array(wanted)).max() < 1e-15


def test_grouped_heads_over_rows():
    query, rows = RNG.normal(size=(6, 7)), RNG.normal(size=(11, 2, 2, 7))
    wanted = [written_out(query[head], rows[:, 0, head // 3], rows[:, 1, head // 3]) for head in range(6)]
    assert np.abs(attend_rows(query, list(rows)) - np.array(wanted)).max() < 1e-15
