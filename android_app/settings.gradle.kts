// For Android Studio. Not built here, where there is no Android SDK: the APK comes from tools/build_apk.py, the tests run by
// Maven (make android has both). tests/android/test_gradle_files.py holds the three together.
// Gradle 8.13, which gradle/wrapper pins: Gradle 9 removed what the Android Gradle Plugin 8 calls.

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
        // The one pom that the TensorFlow Lite presets need and Maven Central lacks.
        maven { url = uri("missing-poms") }
    }
}

rootProject.name = "pocketbert-android"
include(":core", ":app")
