/* Weights: from base64 to float32 arrays. */
'use strict';

const BASE64_AT_ONCE = 1 << 20; // characters, a multiple of 4

/** Bytes of a base64 text, decoded in pieces because texts may have tens of megabytes. */
function decodeBase64(text) {
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const bytes = new Uint8Array((text.length / 4) * 3 - padding);
  let end = 0;
  for (let start = 0; start < text.length; start += BASE64_AT_ONCE) {
    const piece = atob(text.slice(start, start + BASE64_AT_ONCE));
    for (let i = 0; i < piece.length; i++) bytes[end++] = piece.charCodeAt(i);
  }
  return bytes;
}

/** The value of each of the 65,536 half-precision numbers (IEEE 754 binary16). */
function halfTable() {
  const table = new Float32Array(1 << 16);
  for (let bits = 0; bits < table.length; bits++) {
    const sign = bits >> 15 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    const scale = 2 ** (Math.max(exponent, 1) - 25);
    table[bits] = sign * scale * (exponent ? fraction + 1024 : fraction);
  }
  return table;
}

/** Name → {shape, values}: the packed tensors (page/weights.py) as float32. */
function readTensors(bytes, specs) {
  const half = halfTable();
  const tensors = new Map();
  for (const [name, spec] of Object.entries(specs)) {
    tensors.set(name, { shape: spec.shape, values: readValues(bytes.buffer, spec, half) });
  }
  return tensors;
}

function readValues(buffer, spec, half) {
  const size = spec.shape.reduce((product, length) => product * length, 1);
  if (spec.dtype === 'float32') return new Float32Array(buffer, spec.offset, size);
  if (spec.dtype === 'float16') {
    return Float32Array.from(new Uint16Array(buffer, spec.offset, size), (bits) => half[bits]);
  }
  const [rows, columns] = spec.shape;
  const scales = new Float32Array(buffer, spec.scales, rows);
  return Float32Array.from(
    new Int8Array(buffer, spec.offset, size),
    (integer, i) => integer * scales[Math.floor(i / columns)],
  );
}
