/** JSON without loss: integers beyond 2^53 are BigInt on the way in, and digits on the way out. */

const WHOLE = /^-?\d+$/;

export function parse(text) {
  return JSON.parse(text, (key, value, context) => {
    if (typeof value !== 'number' || Number.isSafeInteger(value)) return value;
    const source = context && context.source;
    return source && WHOLE.test(source) ? BigInt(source) : value;
  });
}

export function stringify(value, indent = 0, depth = 0) {
  if (typeof value === 'bigint') return value.toString();
  if (value === undefined) return 'null';
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((one) => stringify(one, indent, depth + 1))
    : Object.entries(value)
      .filter(([, one]) => one !== undefined)
      .map(([key, one]) => `${JSON.stringify(key)}:${indent ? ' ' : ''}${stringify(one, indent, depth + 1)}`);
  const [open, close] = isList ? '[]' : '{}';
  if (!parts.length || !indent) return open + parts.join(indent ? ', ' : ',') + close;
  const pad = '\n' + ' '.repeat(indent * (depth + 1));
  return open + pad + parts.join(',' + pad) + '\n' + ' '.repeat(indent * depth) + close;
}
