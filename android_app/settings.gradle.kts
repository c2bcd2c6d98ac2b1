// For Android Studio. Untested: the project has no Android SDK. tools/build_apk.py builds the APK, Maven runs the tests
// (make android does both), and tests/android/test_gradle_files.py compares the three builds.
// gradle/wrapper pins Gradle 8.13: Gradle 9 removed functions used by the Android Gradle Plugin 8.

pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}

dependencyResolutionManagement {
    repositoriesMode = RepositoriesMode.FAIL_ON_PROJECT_REPOS
    repositories {
        google()
        mavenCentral()
        // The POM required by the TensorFlow Lite presets and missing on Maven Central.
        maven { url = uri("missing-poms") }
    }
}

rootProject.name = "pocketbert-android"
include(":core", ":app")
