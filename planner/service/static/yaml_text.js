// Changing one value of a YAML text and leaving the rest, comments and all, as it was written.

const PLAIN = /^[A-Za-z_][\w ./<>=+-]*$/, WORD = /^(true|false|null|yes|no|on|off|~)$/i;

// A value in YAML's flow style.
export function flow(value) {
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (value !== null && typeof value === "object") return `{${Object.entries(value).map(([key, item]) => `${flow(key)}: ${flow(item)}`).join(", ")}}`;
  if (typeof value !== "string") return String(value);
  return PLAIN.test(value) && !WORD.test(value) && value.trim() === value ? value : JSON.stringify(value);
}

const indentOf = (line) => line.length - line.trimStart().length;
const idle = (line) => line.trim() === "" || line.trimStart().startsWith("#");

// [first line, line after the last] of the node `key` among lines [from, to) that stand at `indent`; null: not there.
function find(lines, key, from, to, indent) {
  for (let i = from; i < to; i++) {
    const line = lines[i];
    if (idle(line) || indentOf(line) !== indent || !new RegExp(`^(${key}|"${key}"|'${key}')\\s*:(\\s|$)`).test(line.trimStart())) continue;
    let end = i + 1;
    while (end < to && (idle(lines[end]) || indentOf(lines[end]) > indent || (indentOf(lines[end]) === indent && lines[end].trimStart().startsWith("- ")))) end++;
    while (end > i + 1 && idle(lines[end - 1])) end--;
    return [i, end];
  }
  return null;
}

// The text with `path` (a list of keys) set to `value`; `whole` is the document's value, from which a node is written
// anew that holds the path in flow style.
export function withValue(text, path, value, whole) {
  const lines = text.split("\n");
  let from = 0, to = lines.length, indent = 0;
  for (let depth = 0; depth < path.length; depth++) {
    const node = find(lines, path[depth], from, to, indent), last = depth === path.length - 1;
    if (!node) {
      const at = from === 0 && to === lines.length && lines.at(-1) === "" ? to - 1 : to;
      lines.splice(at, 0, ...written(path[depth], nested(path.slice(depth + 1), value), indent));
      return lines.join("\n");
    }
    const [i, end] = node, after = lines[i].slice(lines[i].indexOf(":") + 1), rest = after.replace(/(^|\s)#.*$/, "").trim();
    if (last || rest !== "" || end === i + 1) {
      const held = last ? value : changed(path.slice(0, depth + 1).reduce((at, key) => at?.[key], whole), path.slice(depth + 1), value);
      const comment = end === i + 1 ? after.match(/\s+#.*$/)?.[0] ?? "" : "";
      const block = written(path[depth], held, indent);
      block[0] += comment;
      lines.splice(i, end - i, ...block);
      return lines.join("\n");
    }
    const child = lines.slice(i + 1, end).find((line) => !idle(line));
    [from, to, indent] = [i + 1, end, indentOf(child)];
  }
  return text;
}

const nested = (path, value) => path.reduceRight((inner, key) => ({ [key]: inner }), value);
function changed(object, [key, ...rest], value) {
  const held = object !== null && typeof object === "object" && !Array.isArray(object) ? object : {};
  return { ...held, [key]: rest.length ? changed(held[key], rest, value) : value };
}

// Lists of limits and objectives are easier to read a line each.
function written(key, value, indent) {
  const pad = " ".repeat(indent);
  if (Array.isArray(value) && indent === 0 && value.length) return [`${key}:`, ...value.map((item) => `  - ${flow(item).replace(/^\{(.*)\}$/, "$1")}`)];
  return [`${pad}${key}: ${flow(value)}`];
}
