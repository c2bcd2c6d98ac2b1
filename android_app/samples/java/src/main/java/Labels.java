import java.nio.file.Paths;
import java.util.Arrays;
import org.pocketbert.Pipeline;
import org.pocketbert.UserError;
import org.pocketbert.bundle.Classification;
import org.pocketbert.bundle.TextClassifier;

/** Prints the label of each text, and its probability: {@code java -jar target/labels.jar BUNDLE TEXT…}. */
public final class Labels {
  private Labels() {}

  public static void main(String[] arguments) {
    // In an app: Pipeline.open(context.getAssets().open("bundle.zip")).
    try (Pipeline pipeline = Pipeline.open(Paths.get(arguments[0]))) {
      TextClassifier classifier = pipeline.classifier();
      for (String text : Arrays.asList(arguments).subList(1, arguments.length)) {
        Classification answer = classifier.classify(text);
        // A bundle with a threshold rejects uncertain texts; their label is null.
        System.out.println(answer.label + " " + answer.probabilities.get(answer.label) + " " + text);
      }
    } catch (UserError error) {
      System.err.println(error.getMessage());
      System.exit(2);
    }
  }
}
