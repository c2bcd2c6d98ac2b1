"""py_test for pytest files."""

def pytest_tests(paths, deps):
    """Creates a py_test for each file, named after it without its ending. All get the same `deps`."""
    for path in paths:
        native.py_test(
            name = path[:-len(".py")],
            size = "medium",
            srcs = [
                path,
                "helpers/bazel_main.py",
            ],
            args = ["$(rootpath %s)" % path],
            data = ["//:pyproject.toml"],
            main = "helpers/bazel_main.py",
            python_version = "PY3",
            deps = deps,
        )
