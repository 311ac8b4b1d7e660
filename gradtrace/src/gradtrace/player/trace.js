// A trace as Python packed it (`gradtrace.tracing.packing`): a record is a list that begins with the
// number of its class, any other list begins with 0, and a list of one number refers to a shared item.

export function unpacked({ classes, shared, value }) {
  const known = [];
  const read = (item) => {
    if (!(item instanceof Object)) return item;
    if (!Array.isArray(item)) return Object.fromEntries(Object.entries(item).map(([key, part]) => [key, read(part)]));
    const [kind, ...parts] = item;
    if (item.length === 1) return (known[kind] ??= read(shared[kind]));
    const values = parts.map(read);
    return kind ? Object.fromEntries(classes[kind - 1].slice(1).map((name, k) => [name, values[k]])) : values;
  };
  return read(value);
}
