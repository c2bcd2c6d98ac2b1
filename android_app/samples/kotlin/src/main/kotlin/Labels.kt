import java.io.File
import org.pocketbert.Pipeline

/** Prints the label of each text, and its probability: `java -jar target/labels.jar BUNDLE.zip TEXT…`. */
fun main(arguments: Array<String>) {
    // In an app: Pipeline.open(context.assets.open("bundle.zip")).
    Pipeline.open(File(arguments[0]).inputStream()).use { pipeline ->
        val classifier = pipeline.classifier()
        for (text in arguments.drop(1)) {
            val answer = classifier.classify(text)
            println("${answer.label} ${answer.probabilities[answer.label]} $text")
        }
    }
}
