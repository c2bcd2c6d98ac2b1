// Untested; see ../settings.gradle.kts.

plugins {
    `java-library`
}

dependencies {
    api(libs.tensorflow.lite)
    testImplementation(libs.junit)
    // Native code for the computer that runs the tests.
    testRuntimeOnly(variantOf(libs.tensorflow.lite) { classifier("linux-x86_64") })
    testRuntimeOnly(variantOf(libs.javacpp) { classifier("linux-x86_64") })
}

tasks.compileJava {
    options.release = 8
}

tasks.compileTestJava {
    options.release = 17
}

tasks.test {
    systemProperty("pocketbert.goldens", file("../../tests/goldens"))
    systemProperty("pocketbert.shared", file("../../../shared"))
}
