package org.pocketbert.bundle;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import org.pocketbert.json.Json;
import org.pocketbert.json.JsonError;

/**
 * Reads a safetensors file with 32-bit floats: the length of a header in 8 bytes, the header in JSON, then the values.
 *
 * <p>Each tensor is a view of the given bytes, not a copy.
 */
final class Safetensors {
  private static final int LENGTH_BYTES = 8;
  // A tensor needs about 100 bytes in the header.
  private static final int MOST_HEADER_BYTES = 1 << 20;

  private Safetensors() {}

  /** A tensor. */
  static final class Tensor {
    /** The size of each axis. */
    final int[] shape;

    /** The values in row-major order; read them by index. */
    final FloatBuffer values;

    private Tensor(int[] shape, FloatBuffer values) {
      this.shape = shape;
      this.values = values;
    }
  }

  /**
   * Reads a file.
   *
   * @param content all its bytes
   * @return tensors by name
   * @throws CheckedFile.Unusable if the header is too long, invalid JSON or wrong, or if the tensors do not fill the
   *     rest of the file without gaps or overlaps
   */
  static Map<String, Tensor> read(ByteBuffer content) throws CheckedFile.Unusable {
    ByteBuffer bytes = content.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    if (bytes.remaining() < LENGTH_BYTES) {
      throw new CheckedFile.Unusable("must be a safetensors file; it has " + bytes.remaining() + " bytes");
    }
    long headerBytes = bytes.getLong();
    if (headerBytes < 2 || headerBytes > Math.min(MOST_HEADER_BYTES, bytes.remaining())) {
      throw new CheckedFile.Unusable(
          "must be a safetensors file with a header of at most " + MOST_HEADER_BYTES + " bytes; it claims "
              + headerBytes + " of " + bytes.remaining());
    }
    int dataStart = bytes.position() + (int) headerBytes;
    ByteBuffer data = part(bytes, dataStart, bytes.limit());
    List<String> problems = new ArrayList<>();
    Map<String, Tensor> tensors = tensors(header(part(bytes, bytes.position(), dataStart), problems), data, problems);
    if (!problems.isEmpty()) {
      throw damaged(problems);
    }
    return tensors;
  }

  private static Fields header(ByteBuffer bytes, List<String> problems) throws CheckedFile.Unusable {
    try {
      String text = StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
      return Fields.of(Json.parse(text), "$", problems);
    } catch (JsonError error) {
      problems.add("its header: " + error.getMessage());
    } catch (CharacterCodingException error) {
      problems.add("its header must be UTF-8");
    }
    throw damaged(problems);
  }

  private static Map<String, Tensor> tensors(Fields header, ByteBuffer data, List<String> problems) {
    Map<String, Tensor> tensors = new LinkedHashMap<>();
    SortedMap<Long, Long> parts = new TreeMap<>();
    for (String name : header.names()) {
      Fields tensor = header.object(name);
      int before = problems.size();
      if (!tensor.string("dtype").equals("F32")) {
        problems.add(tensor.path("dtype") + " must be F32");
      }
      long[] shape = tensor.wholeNumbers("shape");
      long[] offsets = tensor.wholeNumbers("data_offsets");
      tensor.close();
      if (problems.size() > before) {
        continue;
      }
      int[] sizes = new int[shape.length];
      long count = 1;
      for (int i = 0; i < sizes.length; i++) {
        // Larger sizes are wrong anyway; the limit prevents overflow.
        sizes[i] = (int) Math.min(shape[i], data.limit());
        count = Math.min(count * sizes[i], data.limit());
      }
      boolean fits = offsets.length == 2 && offsets[0] <= offsets[1] && offsets[1] <= data.limit();
      if (!fits || offsets[1] - offsets[0] != count * Float.BYTES || parts.put(offsets[0], offsets[1]) != null) {
        problems.add(tensor.path("data_offsets") + " must enclose " + count + " floats inside the file");
        continue;
      }
      FloatBuffer values =
          part(data, (int) offsets[0], (int) offsets[1]).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
      tensors.put(name, new Tensor(sizes, values));
    }
    long end = 0;
    for (Map.Entry<Long, Long> part : parts.entrySet()) {
      end = part.getKey() == end ? part.getValue() : -1;
    }
    if (problems.isEmpty() && end != data.limit()) {
      problems.add("its tensors must fill it without gaps or overlaps");
    }
    return tensors;
  }

  private static CheckedFile.Unusable damaged(List<String> problems) {
    return new CheckedFile.Unusable("must be a safetensors file of floats: " + problems.get(0));
  }

  private static ByteBuffer part(ByteBuffer bytes, int from, int to) {
    ByteBuffer part = bytes.duplicate();
    part.position(from).limit(to);
    return part.slice();
  }
}
