"""py_test for files that are written for pytest."""

def pytest_tests(paths, deps):
    """A py_test for each file, named after it without its ending; `deps` are everybody's."""
    for path in paths:
        native.py_test(
            name = path[:-len(".py")],
            size = "medium",
            srcs = [
                path,
                "bazel_main.py",
            ],
            args = ["$(rootpath %s)" % path],
            data = ["//:pyproject.toml"],
            main = "bazel_main.py",
            python_version = "PY3",
            deps = deps,
        )
