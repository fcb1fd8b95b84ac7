from devset.checks import grade

PATH = "Documents/library.sqlite"
ONE = "select returned from loans where book = 'Ulysses' and borrower = 'Nina'"
REST = "select group_concat(id || ':' || book || ':' || borrower || ':' || returned, ' ') from (select * from loans where id <> 17 order by id)"

grade(
    {
        "returned": [("sqlite_value", {"path": PATH, "query": ONE, "expected": 1})],
        "others": [
            ("sqlite_value", {"path": PATH, "query": "select count(*) from loans", "expected": 4}),
            ("sqlite_value", {"path": PATH, "query": REST, "expected": "14:Walden:Hugo:1 15:Dracula:Nina:0 16:Emma:Theo:0"}),
        ],
    }
)
