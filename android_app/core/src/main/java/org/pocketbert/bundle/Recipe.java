package org.pocketbert.bundle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/** A row of {@code pocketbert.recipes.RECIPES}: the differences that the checks allow. */
public final class Recipe {
  private static final String FILE = "recipes.txt";
  private static final Map<String, Recipe> RECIPES = read();

  /** The recipes' names, in the table's order. */
  static final Set<String> NAMES = Collections.unmodifiableSet(RECIPES.keySet());

  /** Largest difference from the float model, relative to the root mean square of its outputs. */
  public final double largestDifference;

  /** Root mean square difference from the float model, relative like {@link #largestDifference}. */
  public final double rmsDifference;

  /** Largest difference from the outputs at export, relative to the largest of them. */
  public final double ownDifference;

  private Recipe(String[] words) {
    largestDifference = Double.parseDouble(words[1]);
    rmsDifference = Double.parseDouble(words[2]);
    ownDifference = Double.parseDouble(words[3]);
  }

  /** Returns the recipe of an opened bundle. */
  public static Recipe of(String name) {
    return RECIPES.get(name);
  }

  private static Map<String, Recipe> read() {
    Map<String, Recipe> recipes = new LinkedHashMap<>();
    try (InputStream stream = Recipe.class.getResourceAsStream(FILE)) {
      if (stream == null) {
        throw new IllegalStateException(FILE + " must be in the resources of " + Recipe.class.getName());
      }
      BufferedReader reader = new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8));
      for (String line = reader.readLine(); line != null; line = reader.readLine()) {
        if (!line.startsWith("#")) {
          String[] words = line.split(" ");
          recipes.put(words[0], new Recipe(words));
        }
      }
    } catch (IOException error) {
      throw new IllegalStateException(FILE + " cannot be read", error);
    }
    return recipes;
  }
}
