// Untested; see settings.gradle.kts.

plugins {
    alias(libs.plugins.android.application) apply false
}
