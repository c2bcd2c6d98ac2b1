// Untested; see ../settings.gradle.kts. The activities' tests run with Maven only (make android).

plugins {
    alias(libs.plugins.android.application)
}

android {
    // The package of R. The application id differs, because the core has a package org.pocketbert.benchmark.
    namespace = "org.pocketbert.app"
    compileSdk = libs.versions.compileSdk.get().toInt()

    defaultConfig {
        applicationId = "org.pocketbert.benchmark"
        minSdk = libs.versions.minSdk.get().toInt()
        targetSdk = libs.versions.targetSdk.get().toInt()
        versionCode = libs.versions.versionCode.get().toInt()
        versionName = libs.versions.versionName.get()
        ndk { abiFilters += "arm64-v8a" }
    }

    buildTypes {
        release {
            isMinifyEnabled = true
            proguardFiles("proguard-rules.pro")
        }
    }

    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }

    packaging {
        // Uncompressed and aligned, for Android with 16 KB pages.
        jniLibs.useLegacyPackaging = false
        // Several jars of the runtime have a file of the same name, which fails the build. No app reads these files.
        resources.excludes += setOf("META-INF/native-image/**", "META-INF/maven/**", "META-INF/versions/**")
    }

    sourceSets {
        named("main") {
            // The CPU runtime. Only tools/build_apk.py makes the GPU build (src/aar).
            java.srcDir("src/javacpp/java")
        }
        named("test") { java.setSrcDirs(emptyList<String>()) }
    }
}

dependencies {
    implementation(project(":core"))
    runtimeOnly(variantOf(libs.tensorflow.lite) { classifier("android-arm64") })
    runtimeOnly(variantOf(libs.javacpp) { classifier("android-arm64") })
}
