"""Rules for Java with the installed JDK: Debian's Bazel lacks the compiler required by java_library."""

JarInfo = provider(fields = {"jars": "depset of jars: a library's own and its dependencies"})

def _jars_of(deps):
    return depset(transitive = [dep[JarInfo].jars for dep in deps])

def _sys_java_library_impl(ctx):
    jar = ctx.actions.declare_file(ctx.label.name + ".jar")
    needed = _jars_of(ctx.attr.deps)
    arguments = ctx.actions.args()
    arguments.add(jar)
    arguments.add(ctx.attr.release)
    arguments.add_joined(needed, join_with = ":", omit_if_empty = False)
    arguments.add(ctx.attr.resource_root)
    arguments.add_all(ctx.files.srcs)
    ctx.actions.run_shell(
        inputs = depset(ctx.files.srcs + ctx.files.resources, transitive = [needed]),
        outputs = [jar],
        arguments = [arguments],
        # A fixed date gives equal bytes for equal sources.
        command = """set -e
jar=$1 release=$2 classpath=$3 resources=$4; shift 4
classes=$(mktemp -d)
javac --release "$release" -encoding UTF-8 -Xlint:-options -d "$classes" -cp "$classpath" "$@"
if [ -n "$resources" ]; then cp -rL "$resources/." "$classes"; fi
jar --create --file "$jar" --date=1980-01-01T00:00:02Z -C "$classes" .
rm -rf "$classes"
""",
        mnemonic = "SystemJavac",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([jar])), JarInfo(jars = depset([jar], transitive = [needed]))]

sys_java_library = rule(
    implementation = _sys_java_library_impl,
    attrs = {
        "deps": attr.label_list(providers = [JarInfo]),
        "release": attr.string(default = "8"),
        "resource_root": attr.string(doc = "folder from the workspace's root whose content goes into the jar"),
        "resources": attr.label_list(allow_files = True),
        "srcs": attr.label_list(allow_files = [".java"], mandatory = True),
    },
)

def _sys_java_import_impl(ctx):
    return [DefaultInfo(files = depset(ctx.files.jars)), JarInfo(jars = depset(ctx.files.jars))]

sys_java_import = rule(
    implementation = _sys_java_import_impl,
    attrs = {"jars": attr.label_list(allow_files = [".jar"], mandatory = True)},
)

def _sys_junit_test_impl(ctx):
    jars = _jars_of(ctx.attr.deps)
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    ctx.actions.write(
        script,
        # Resources are copied, since the code under test refuses links, and runfiles are links.
        """#!/bin/sh
set -e
mkdir "$TEST_TMPDIR/resources"
if [ -n "%s" ]; then cp -rL "%s/." "$TEST_TMPDIR/resources"; fi
exec java -cp "%s:$TEST_TMPDIR/resources" %s org.junit.runner.JUnitCore %s
""" % (
            ctx.attr.resource_root,
            ctx.attr.resource_root,
            ":".join([jar.short_path for jar in jars.to_list()]),
            " ".join(ctx.attr.jvm_flags),
            " ".join(ctx.attr.classes),
        ),
        is_executable = True,
    )
    return [DefaultInfo(
        executable = script,
        runfiles = ctx.runfiles(files = ctx.files.data, transitive_files = jars),
    )]

sys_junit_test = rule(
    implementation = _sys_junit_test_impl,
    test = True,
    attrs = {
        "classes": attr.string_list(mandatory = True),
        "data": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [JarInfo]),
        "jvm_flags": attr.string_list(),
        "resource_root": attr.string(doc = "folder from the workspace's root, on the class path"),
    },
)
