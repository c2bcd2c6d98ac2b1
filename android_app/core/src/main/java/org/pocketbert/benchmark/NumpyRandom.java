package org.pocketbert.benchmark;

/**
 * The random integers of NumPy's {@code default_rng(0)}, so that a bootstrap interval is the same number on a phone and
 * in Python.
 *
 * <p>PCG64 (O'Neill 2014, XSL-RR, 128-bit state) with NumPy's 32-bit halves and Lemire's bounded integers (2019,
 * https://arxiv.org/abs/1805.10941), as {@code Generator.integers} draws below 2^32.
 */
final class NumpyRandom {
  private static final long MULTIPLIER_HIGH = 0x2360ED051FC65DA4L;
  private static final long MULTIPLIER_LOW = 0x4385DF649FCCF645L;
  // What seed 0 gives after NumPy's SeedSequence.
  private static final long INCREMENT_HIGH = 0x418DDADB3AF71A82L;
  private static final long INCREMENT_LOW = 0x588133BC447873A9L;
  private static final long MASK = 0xFFFFFFFFL;

  private long high = 0x1AA1B5345996452DL;
  private long low = 0x09585EB7A69561E3L;
  private boolean hasHalf;
  private long half;

  /** A number from 0 to {@code bound - 1}. */
  int below(int bound) {
    long product = next32() * bound;
    if ((product & MASK) < bound) {
      long threshold = (1L << 32) % bound;
      while ((product & MASK) < threshold) {
        product = next32() * bound;
      }
    }
    return (int) (product >>> 32);
  }

  private long next32() {
    if (hasHalf) {
      hasHalf = false;
      return half;
    }
    long value = next64();
    hasHalf = true;
    half = value >>> 32;
    return value & MASK;
  }

  private long next64() {
    // state = state * multiplier + increment, modulo 2^128.
    long productHigh = multiplyHigh(low, MULTIPLIER_LOW) + high * MULTIPLIER_LOW + low * MULTIPLIER_HIGH;
    long productLow = low * MULTIPLIER_LOW;
    low = productLow + INCREMENT_LOW;
    long carry = Long.compareUnsigned(low, productLow) < 0 ? 1 : 0;
    high = productHigh + INCREMENT_HIGH + carry;
    return Long.rotateRight(high ^ low, (int) (high >>> 58));
  }

  /** The upper half of the unsigned product; Math.multiplyHigh is younger than the oldest Android we run on. */
  private static long multiplyHigh(long a, long b) {
    long aHigh = a >>> 32;
    long aLow = a & MASK;
    long bHigh = b >>> 32;
    long bLow = b & MASK;
    long middle = aHigh * bLow + (aLow * bLow >>> 32);
    long other = aLow * bHigh + (middle & MASK);
    return aHigh * bHigh + (middle >>> 32) + (other >>> 32);
  }
}
