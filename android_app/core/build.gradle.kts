// Untested; see ../settings.gradle.kts.

plugins {
    `java-library`
    `maven-publish`
}

group = "org.pocketbert"
version = libs.versions.pocketbert.get()

java {
    withSourcesJar()
    withJavadocJar()
}

publishing {
    publications.create<MavenPublication>("core") {
        artifactId = "pocketbert-core"
        from(components["java"])
    }
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
