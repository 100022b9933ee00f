"""Measures are SQL from strangers: what is allowed, and that everything else is refused in bounded time."""

import pytest

from audit.sql import NotAllowed, Tables


@pytest.fixture
def tables():
    made = Tables(steps=2_000_000)
    made.add("main", ["row", "kind", "gap"], [(row, "ab"[row % 2], row / 4) for row in range(50)])
    return made


def test_a_measure_gives_its_columns(tables):
    measure = (
        "SELECT max(gap) AS worst, count(*) AS n, round(avg(abs(gap)), 2) AS mean, total(gap) AS t, coalesce(sum(gap), 0) AS s FROM main"
    )
    assert tables.measure(measure) == {"worst": 12.25, "n": 50, "mean": 6.13, "t": 306.25, "s": 306.25}
    assert tables.expression("worst > 12 AND n = 50", {"worst": 12.25, "n": 50}) == 1
    assert tables.expression("worst > 13", {"worst": 12.25}) == 0
    assert tables.expression("worst > 1", {"worst": None}) is None


def test_a_mean_is_correctly_rounded_in_every_version_of_sqlite():
    made = Tables()
    made.add("main", ["x", "text"], [(1e16, "a"), (1.0, "b"), (-1e16, "c"), (None, "d")])
    assert made.measure("SELECT avg(x) AS mean FROM main") == {"mean": 1 / 3}
    assert made.measure("SELECT avg(x) AS mean FROM main WHERE x IS NULL") == {"mean": None}
    with pytest.raises(NotAllowed):
        made.measure("SELECT avg(text) AS mean FROM main")


def test_joins_subqueries_and_common_tables_are_fine(tables):
    assert tables.measure("SELECT count(*) AS n FROM main a JOIN main b ON a.row = b.row + 1 WHERE a.kind <> b.kind") == {"n": 49}
    assert tables.measure("WITH x AS (SELECT gap FROM main WHERE kind = 'a') SELECT min(gap) AS least FROM x") == {"least": 0.0}
    assert tables.measure("SELECT count(*) AS n FROM (SELECT DISTINCT kind FROM main)") == {"n": 2}
    assert tables.measure("WITH x AS (SELECT max(gap) AS m FROM main GROUP BY kind) SELECT count(*) AS n FROM x") == {"n": 2}
    assert tables.measure("SELECT min(CASE WHEN gap > 1 THEN gap END) AS g FROM main") == {"g": 1.25}


REFUSED = {
    "attach": "ATTACH ':memory:' AS other",
    "attach a file": "ATTACH 'stolen.db' AS other",
    "pragma": "PRAGMA table_info(main)",
    "pragma as a function": "SELECT count(*) AS n FROM pragma_table_info('main')",
    "schema": "SELECT count(*) AS n FROM sqlite_master",
    "schema, said to be a common table": "SELECT count(*) AS n, 'sqlite_master AS (' AS t FROM sqlite_master",
    "temporary schema": "SELECT count(*) AS n FROM sqlite_temp_master",
    "other schema": "SELECT count(*) AS n FROM temp.main",
    "insert": "INSERT INTO main VALUES (1, 'a', 0)",
    "update": "UPDATE main SET gap = 0",
    "delete": "DELETE FROM main",
    "drop": "DROP TABLE main",
    "create": "CREATE TABLE other (a)",
    "create from a select": "CREATE TABLE other AS SELECT * FROM main",
    "temporary view": "CREATE TEMP VIEW v AS SELECT 1",
    "transaction": "BEGIN",
    "vacuum into a file": "VACUUM INTO 'stolen.db'",
    "recursion": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) AS n FROM c",
    "recursion with an end": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 5) SELECT max(n) AS n FROM c",
    "two statements": "SELECT 1 AS a; SELECT 2 AS b",
    "a function not allowed": "SELECT hex(1) AS h",
    "random": "SELECT random() AS r",
    "load_extension": "SELECT load_extension('x') AS r",
    "like is a function": "SELECT count(*) AS n FROM main WHERE kind LIKE 'a'",
    "glob is a function": "SELECT count(*) AS n FROM main WHERE kind GLOB 'a'",
    "group_concat": "SELECT group_concat(kind) AS k FROM main",
    "zeroblob": "SELECT zeroblob(1000000000) AS z",
    "a blob": "SELECT x'00' AS b",
    "infinity": "SELECT 9e999 AS i",
    "no such table": "SELECT 1 AS a FROM nothing",
    "no such column": "SELECT nothing AS a FROM main",
    "not SQL": "worst <= 1",
    "empty": "",
    "a comment alone": "-- nothing",
    "two rows": "SELECT gap AS g FROM main",
    "no row": "SELECT gap AS g FROM main WHERE row = 99",
    "columns of one name": "SELECT 1 AS a, 2 AS a",
    "a column without a name": "SELECT max(gap) FROM main",
    "NUL": "SELECT 1 AS a\0",
    "half a surrogate pair": "SELECT '\ud800' AS a",
    "longer than allowed": "SELECT 1 AS a" + " " * 30_000,
    "deep": "SELECT " + "(" * 900 + "1" + ")" * 900 + " AS a",
    "an integer too large": "SELECT 9223372036854775807 + 1 AS a, abs(-9223372036854775807 - 1) AS b",
    "explain": "EXPLAIN SELECT 1 AS a",
    "a parameter": "SELECT ? AS a",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_refused(tables, text):
    with pytest.raises(NotAllowed):
        tables.measure(text)
    assert tables.measure("SELECT count(*) AS n, sum(gap) AS s FROM main") == {"n": 50, "s": 306.25}


def test_a_heavy_query_ends_at_the_step_limit(tables):
    with pytest.raises(NotAllowed, match="steps"):
        tables.measure("SELECT count(*) AS n FROM main a, main b, main c, main d, main e")
    assert tables.measure("SELECT count(*) AS n FROM main a, main b") == {"n": 2500}


@pytest.mark.parametrize(
    "text",
    [
        "1) UNION SELECT (2",
        "1, 2",
        "1) --",
        "SELECT 1 AS a FROM main",
        "(SELECT max(n) FROM sqlite_master)",
        "(SELECT count(*) FROM main) = 50",
        "1; SELECT 2",
        "missing > 1",
        "x'00' = hex(1)",
    ],
)
def test_expressions_that_are_none(tables, text):
    with pytest.raises(NotAllowed):
        tables.expression(text, {"n": 1})


def test_tables_can_be_added_after_a_measure(tables):
    tables.measure("SELECT 1 AS a")
    tables.add("more", ["row"], [(1,), (2,)])
    assert tables.measure("SELECT count(*) AS n FROM more") == {"n": 2}
