// sentencepiece's normalizer for unigram tokenizers: at each place, the longest match in the tokenizer's compiled map.
// Hugging Face's tokenizer for JavaScript approximates it by NFKC, and makes spaces of zero-width joiners.

const OFFSET = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);

// The map is a double-array trie (https://github.com/s-yata/darts-clone) over UTF-8, and the texts that its values point to.
function compiledMap(base64) {
  const content = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const size = new DataView(content.buffer).getUint32(0, true);
  const units = new Uint32Array(content.buffer, 4, size / 4), texts = content.subarray(4 + size);
  return (text) => {
    const bytes = new TextEncoder().encode(text), normalized = [];
    for (let start = 0, length; start < bytes.length; start += length) {
      let node = OFFSET(units[0]), value = -1;
      length = 1;
      for (let end = start; end < bytes.length; end++) {
        const unit = units[node ^ bytes[end]];
        if ((unit & 0x800000ff) !== bytes[end]) break;
        node ^= bytes[end] ^ OFFSET(unit);
        if (unit & 0x100) [value, length] = [units[node] & 0x7fffffff, end + 1 - start];
      }
      if (value >= 0) normalized.push(...texts.subarray(value, texts.indexOf(0, value)));
      else {
        while ((bytes[start + length] & 0xc0) === 0x80) length++;
        normalized.push(...bytes.subarray(start, start + length));
      }
    }
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(normalized));
  };
}

// Gives a tokenizer the exact normalizer, if its tokenizer.json has a compiled map.
export function normalizeExactly(tokenizer, { normalizer }) {
  const normalizers = normalizer?.normalizers ?? [];
  const position = normalizers.findIndex(({ type }) => type === "Precompiled");
  if (position < 0) return;
  tokenizer.normalizer.normalizers[position] = { normalize: compiledMap(normalizers[position].precompiled_charsmap) };
}
