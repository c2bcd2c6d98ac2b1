// Not built here; see ../settings.gradle.kts. The activities' tests run with Maven alone (make android).

plugins {
    alias(libs.plugins.android.application)
}

android {
    // The package of R; the application's id is another, since the core has the package org.pocketbert.benchmark.
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
        // Uncompressed and aligned, as Android with pages of 16 KB wants them.
        jniLibs.useLegacyPackaging = false
        // Several of the runtime's jars bring a file of the same name, which ends the build. No app reads these.
        resources.excludes += setOf("META-INF/native-image/**", "META-INF/maven/**", "META-INF/versions/**")
    }

    sourceSets {
        named("main") {
            // The runtime for the processor; the build with the GPU (src/aar) is tools/build_apk.py's alone.
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
