package org.pocketbert.json;

/** Invalid JSON. The message tells you what was expected, where, and what was found. */
public final class JsonError extends RuntimeException {
  private static final long serialVersionUID = 1;

  JsonError(String message) {
    super(message);
  }
}
