package org.pocketbert.engine;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** What TensorFlow Lite's Java interface does not tell of a model file, read from the file: a FlatBuffer. */
final class FirstGraph {
  // Places of fields in their tables: schema.fbs, tables Model and SubGraph.
  private static final int MODEL_SUBGRAPHS = 2;
  private static final int SUBGRAPH_OPERATORS = 3;
  private static final int VTABLE_HEADER_BYTES = 4;

  private final ByteBuffer bytes;

  private FirstGraph(ByteBuffer model) {
    bytes = model.duplicate().order(ByteOrder.LITTLE_ENDIAN);
  }

  /**
   * Number of operators of a file's first graph.
   *
   * @throws EngineException if the bytes are no model
   */
  static int operators(ByteBuffer model) {
    FirstGraph file = new FirstGraph(model);
    try {
      int graphs = file.vector(file.follow(0), MODEL_SUBGRAPHS);
      // A vector is its length and then, for tables, an offset each.
      int operators = file.vector(file.follow(graphs + Integer.BYTES), SUBGRAPH_OPERATORS);
      return file.bytes.getInt(operators);
    } catch (IndexOutOfBoundsException error) {
      throw new EngineException("the file is no TFLite model: its first graph cannot be found");
    }
  }

  /** Where a field of a table, a vector, begins. */
  private int vector(int table, int field) {
    int vtable = table - bytes.getInt(table);
    int entry = VTABLE_HEADER_BYTES + field * Short.BYTES;
    // A field at the table's own offset, or beyond the list of fields, is absent.
    int offset = entry < bytes.getShort(vtable) ? bytes.getShort(vtable + entry) : 0;
    if (offset == 0) {
      throw new IndexOutOfBoundsException("the field is absent");
    }
    return follow(table + offset);
  }

  private int follow(int position) {
    return position + bytes.getInt(position);
  }
}
