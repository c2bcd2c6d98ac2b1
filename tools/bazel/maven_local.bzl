"""Jars from the local Maven repository, so that a build needs no network and no second copy."""

def _maven_local_impl(context):
    repository = context.os.environ["HOME"] + "/.m2/repository/"
    lines = []
    for name, coordinates in context.attr.jars.items():
        parts = coordinates.split(":")
        group, artifact, version = parts[0:3]
        classifier = "-" + parts[3] if len(parts) > 3 else ""
        jar = "%s-%s%s.jar" % (artifact, version, classifier)
        found = context.path(repository + "/".join(group.split(".") + [artifact, version, jar]))
        if not found.exists:
            fail("%s must be in Maven's repository; run make android-test once" % coordinates)
        context.symlink(found, name + ".jar")
        lines.append('sys_java_import(name = "%s", jars = ["%s.jar"], visibility = ["//visibility:public"])' % (name, name))
    load_line = 'load("@pocketbert//tools/bazel:java.bzl", "sys_java_import")'
    context.file("BUILD", "\n".join([load_line] + lines) + "\n")

maven_local = repository_rule(
    implementation = _maven_local_impl,
    attrs = {"jars": attr.string_dict(mandatory = True, doc = "target → group:artifact:version[:classifier]")},
    environ = ["HOME"],
    local = True,
)
