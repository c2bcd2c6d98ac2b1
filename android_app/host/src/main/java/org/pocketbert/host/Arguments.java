package org.pocketbert.host;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.pocketbert.UserError;

/** The command line. */
final class Arguments {
  static final String HELP =
      """
      Times bundles on this computer with the code that times them on a phone.

      Each bundle has to answer its golden examples before it is timed. One that does not, or whose process dies, is
      named in a sentence, the others are measured all the same, and the exit code is 1.

      usage: java -jar pocketbert-host.jar [flags] BUNDLE…
        --lengths=32,128     tokens; all that a bundle has if absent
        --threads=1,2        numbers of threads; 1 if absent
        --name=NAME          the network's name; the bundle folder's if absent
        --weights=random     what they are, trained or random; a bundle does not tell
        --output=FILE        result file to write, for pocketbert report
        --overwrite          replace the result file
        --help               this text
      """;

  private static final List<String> WEIGHTS = List.of("trained", "random");

  final List<Path> bundles = new ArrayList<>();
  final boolean help;
  final boolean overwrite;
  final Path output;
  /** Null: nobody said. */
  final String name;
  /** Null: nobody said. */
  final String weights;
  /** Empty: all that a bundle has. */
  final List<Integer> lengths;

  final List<Integer> threads;

  /**
   * Reads a command line.
   *
   * @throws UserError lists everything that is wrong with it
   */
  Arguments(String... words) {
    List<String> problems = new ArrayList<>();
    boolean askedForHelp = false;
    boolean mayReplace = false;
    Path file = null;
    String network = null;
    String origin = null;
    List<Integer> tokens = List.of();
    List<Integer> numbers = List.of(1);
    for (String word : words) {
      String value = word.substring(word.indexOf('=') + 1);
      if (word.equals("--help")) {
        askedForHelp = true;
      } else if (word.equals("--overwrite")) {
        mayReplace = true;
      } else if (word.startsWith("--output=") && !value.isEmpty()) {
        file = Path.of(value);
      } else if (word.startsWith("--name=") && !value.isEmpty()) {
        network = value;
      } else if (word.startsWith("--weights=")) {
        origin = value;
      } else if (word.startsWith("--lengths=")) {
        tokens = numbers("--lengths", value, problems);
      } else if (word.startsWith("--threads=")) {
        numbers = numbers("--threads", value, problems);
      } else if (word.startsWith("-")) {
        problems.add(
            "a flag must be one of --lengths=, --threads=, --name=, --weights=, --output=, --overwrite, --help; received "
                + word);
      } else {
        bundles.add(Path.of(word));
      }
    }
    help = askedForHelp;
    overwrite = mayReplace;
    output = file;
    name = network;
    weights = origin;
    lengths = tokens;
    threads = numbers;
    if (weights != null && !WEIGHTS.contains(weights)) {
      problems.add("--weights must be one of " + String.join(", ", WEIGHTS) + "; received " + weights);
    }
    if (bundles.isEmpty()) {
      problems.add("at least one bundle is needed; received none; for example runs/sst2_int8");
    }
    for (Path bundle : bundles) {
      if (!Files.isDirectory(bundle)) {
        problems.add("a bundle is a folder that pocketbert export made; received " + bundle);
      }
    }
    if (output != null && Files.exists(output) && !overwrite) {
      problems.add(output + " must not be there yet; add --overwrite to replace it");
    }
    if (output != null && !Files.isDirectory(output.toAbsolutePath().getParent())) {
      problems.add(output + " must lie in a folder that exists; make it first");
    }
    if (!help) {
      UserError.throwIfAny(problems, "pocketbert-host");
    }
  }

  private static List<Integer> numbers(String flag, String value, List<String> problems) {
    Set<Integer> numbers = new LinkedHashSet<>();
    for (String number : value.split(",", -1)) {
      if (!number.matches("[1-9][0-9]{0,5}") || !numbers.add(Integer.valueOf(number))) {
        problems.add(flag + " takes different positive numbers, as in " + flag + "=1,2; received " + value);
        break;
      }
    }
    return List.copyOf(numbers);
  }
}
