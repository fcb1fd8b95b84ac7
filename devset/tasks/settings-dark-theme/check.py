from devset.checks import grade

PATH = "Documents/notes/settings.json"

grade(
    {
        "theme": [("json_value", {"path": PATH, "keys": ["theme"], "expected": "dark"})],
        "others": [
            ("json_value", {"path": PATH, "keys": ["window", "width"], "expected": 1280}),
            ("json_value", {"path": PATH, "keys": ["window", "height"], "expected": 800}),
            ("json_value", {"path": PATH, "keys": ["recent", 0], "expected": "letter.odt"}),
            ("json_value", {"path": PATH, "keys": ["recent", 1], "expected": "budget.ods"}),
        ],
    }
)
