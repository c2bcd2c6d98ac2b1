package org.pocketbert.engine;

/** A runtime cannot open or run a model. The message is for people. */
public final class EngineException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** Creates an exception; its message becomes the configuration's reason. */
  public EngineException(String message) {
    super(message);
  }
}
