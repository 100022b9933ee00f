#!/bin/sh
# Resolve every .in file into a .lock file with hashes (uv as a resolver only; pip installs).
set -eu
cd "$(dirname "$0")"
for name in build run test torch tokenizers sign site browser notebooks oracles; do
    override=""
    if [ -f "$name.override" ]; then override="--override $name.override"; fi
    # shellcheck disable=SC2086
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
        --no-annotate --no-strip-extras $override "$name.in" --output-file "$name.lock"
done
