// Facts about a pasted script, read from its text: each a list of `{ line, name }`, empty if it does not
// hold.  They suggest answers to the guide's questions; none of them is a proof.

const NAME = /(?<![\w.])(?:self\.)?[A-Za-z_]\w*(?!\w|\s*=[^=])/g;
const MODULE = /^\s*(?:[\w.]+\.)?(?!\w*(?:Data|Optim|Adam|SGD|RMS|Scheduler|LR|Loader|Writer|Tokenizer|Scaler|Loss)\w*\()[A-Z]\w+\(/;
const NETWORK = /model|net|encoder|decoder|critic|actor|policy|generator|discriminator|rnn|lstm|gru|cell|backbone/i;
const CUT = /\.item\(|\.numpy\(|\.data\b|\.detach\(|\.tolist\(|\btorch\.(?:tensor|Tensor|FloatTensor|from_numpy)\(|\bVariable\(|(?<!\.)\bfloat\(/;

const namesIn = (code) => code.match(NAME) ?? [];
const contains = (code, name) => namesIn(code).includes(name);

// Logical lines: an open bracket continues a line; strings and comments are left out of `code`.
function readLines(text) {
  const lines = [];
  let open = 0;
  text = text.replace(/("""|''')[^]*?\1/g, (quote) => `""${"\n".repeat(quote.split("\n").length - 1)}`);
  text.split("\n").forEach((full, index) => {
    const raw = full.replace(/^(?:>>>|\.\.\.) /, "").replaceAll("\t", "    ");
    const code = raw.replace(/(["'])(?:\\.|(?!\1).)*\1/g, '""').replace(/#.*/, "").trim();
    if (open > 0) lines.at(-1).code += ` ${code}`;
    else if (code) lines.push({ number: index + 1, indent: raw.search(/\S/), code, text: raw.replace(/\s#.*/, "").trim() });
    open = Math.max(0, open + (code.match(/[([{]/g)?.length ?? 0) - (code.match(/[)\]}]/g)?.length ?? 0));
  });
  return lines.map((line) => ({ ...line, ...assignment(line.code) }));
}

// What a line assigns: its targets, the operator and the value.
function assignment(code) {
  const header = /^(?:async )?for (.+?) in (.+):/.exec(code);
  if (header) return { targets: namesIn(header[1]), value: header[2], operator: "for" };
  let depth = 0;
  for (let k = 0; k < code.length; k += 1) {
    depth += "([{".includes(code[k]) - ")]}".includes(code[k]);
    if (depth || code[k] !== "=" || code[k + 1] === "=" || "=!<>".includes(code[k - 1])) continue;
    const operator = /[-+*/@|]$/.test(code.slice(0, k)) ? `${code[k - 1]}=` : "=";
    const left = code.slice(0, k + 1 - operator.length);
    const targets = left.includes("[") ? [] : namesIn(left);
    return { targets, value: code.slice(k + 1), operator, left: left.trim() };
  }
  return { targets: [], value: code, operator: "" };
}

// The lines below a header that are indented further.
function bodyOf(lines, header) {
  const start = lines.indexOf(header) + 1;
  const length = lines.slice(start).findIndex(({ indent }) => indent <= header.indent);
  return lines.slice(start, length < 0 ? undefined : start + length);
}

// The innermost block with such a header around a line.
function blockAround(lines, line, header) {
  return lines.findLast((other) => header.test(other.code) && bodyOf(lines, other).includes(line));
}

// One iteration around the failing line: the body of its loop, and of the functions that the loop calls.
function iterationAround(lines, failing) {
  const within = blockAround(lines, failing, /^def /);
  const called = within && new RegExp(`\\b${/def (\w+)/.exec(within.code)[1]}\\(`);
  let loop = blockAround(lines, failing, /^(?:async )?(?:for|while)\b/);
  if (within && loop && loop.number < within.number) loop = undefined;
  if (!loop && called) {
    const call = lines.find(({ code }) => called.test(code) && !code.startsWith("def "));
    loop = call && blockAround(lines, call, /^(?:async )?(?:for|while)\b/);
  }
  const body = loop ? bodyOf(lines, loop) : [];
  const functions = lines.filter(({ code }) => {
    const name = /^def (\w+)/.exec(code)?.[1];
    return name && body.some((line) => new RegExp(`(?<!\\.)\\b${name}\\(`).test(line.code));
  });
  const region = new Set([...body, ...functions.flatMap((header) => bodyOf(lines, header))]);
  if (!loop) (within ? bodyOf(lines, within) : lines).forEach((line) => region.add(line));
  return { loop, region: [...region].filter(({ code }) => !code.startsWith("def ")) };
}

// Names whose value has a graph: results of modules and of leaves that require grad.
function namesWithGraph(lines) {
  const modules = new Set();
  const tensors = new Set();
  for (const { code, targets, value, operator } of lines) {
    if (operator !== "=" || /parameters\(|state_dict|optim/i.test(value)) continue;
    const calls = namesIn(value).some((name) => value.includes(`${name}(`) && (modules.has(name) || NETWORK.test(name)));
    if (/requires_grad_?(?:\(| *= *)(?:True|\))|nn\.Parameter\(/.test(code)) targets.forEach((name) => tensors.add(name));
    else if (MODULE.test(value)) targets.forEach((name) => modules.add(name));
    else if (!CUT.test(value) && (calls || namesIn(value).some((name) => tensors.has(name)))) targets.forEach((name) => tensors.add(name));
  }
  return tensors;
}

// A line that changes a tensor in place, as far as its text shows: counters and dictionaries are left out.
function writesInPlace({ code, left = "", operator, value }) {
  if (/["']|loss|metric|log|result|total|count|correct|step|epoch|err|acc|size|dict|param_group/i.test(left)) return false;
  const method = /\.(?!requires_grad_|share_memory_|retain_grad)[a-z]\w*[a-z\d]_\(/;
  return (
    method.test(code.replace(/\b(?:nn\.)?init\.\w+|clip_grad_\w+/g, "")) ||
    left.endsWith("]") ||
    (/^[-+*/]=$/.test(operator) && !CUT.test(value) && !/^\s*[\d.]+\s*$|\blen\(|size\(/.test(value))
  );
}

function factsOf(text, failingText) {
  const lines = readLines(text);
  const isBackward = ({ code }) => /\.(?:manual_)?backward\(|autograd\.grad\(/.test(code);
  const failing = lines.find((line) => line.text === failingText) ?? lines.findLast(isBackward);
  if (!failing) return {};
  const { loop, region } = iterationAround(lines, failing);
  const outside = lines.filter((line) => !region.includes(line));
  const backwards = region.filter(isBackward);
  const receivers = backwards.map((line) => /([\w.]+(?:\[[^\]]*\])?)\.backward\(/.exec(line.text)?.[1]);
  const graph = namesWithGraph(lines);

  const assigned = (name, where) => where.filter(({ targets }) => targets.includes(name));
  const detached = (name) => region.some(({ code }) => code.includes(`${name}.detach`) || new RegExp(`\\b${name}\\b.*=.*(?:detach|\\.data|repackage)`).test(code));
  // Names that an iteration reads before it assigns them.
  const written = new Set();
  const carried = new Set();
  for (const line of region) {
    for (const name of [...namesIn(line.value), ...(line.operator.length > 1 && line.operator !== "for" ? line.targets : [])]) {
      if (!written.has(name) && assigned(name, region).length && !detached(name)) carried.add(name);
    }
    line.targets.forEach((name) => written.add(name));
  }
  const isArgument = (name, value) => new RegExp(`\\w\\(.*(?<![\\w.])${name}(?![\\w(])`).test(value);
  const handedOn = ({ targets, value, operator }) =>
    operator === "=" ? targets.filter((name) => isArgument(name, value)) : [];
  const stateOf = (line, names) => {
    const tuple = /\(\s*\w+\s*,\s*\w+\s*\)/.exec(line.left ?? "")?.[0];
    return { line, name: names.length > 1 && tuple ? tuple : names[0], tuple: Boolean(tuple) || isTuple(names[0]) };
  };
  const isTuple = (name) =>
    /LSTM/.test(text) || assigned(name, outside).some(({ value }) => /^\s*\(.*,.*\)$|^\s*\w+,/.test(value));
  const isLoss = (code) => /loss|criterion|cost|err(?!or\b)|output|pred|logits/i.test(code);
  const sums = region.filter((line) => {
    const [name] = line.targets;
    const adds = line.operator === "+=" || (line.operator === "=" && new RegExp(`^\\s*${name}\\s*\\+`).test(line.value));
    return loop && name && adds && carried.has(name) && isLoss(line.value) && !CUT.test(line.value);
  });
  const inBackward = (name) => backwards.some(({ code }) => contains(code.replace(/\.(?=backward)/, " ."), name));
  const appended = region.flatMap((line) => {
    const name = /^([\w.]+)\.(?:append|extend)\(/.exec(line.code)?.[1];
    const cleared = name && region.some(({ code }) => code.startsWith(`${name}.clear(`) || code.startsWith(`del ${name}`));
    return name && loop && !assigned(name, region).length && !cleared ? [{ line, name }] : [];
  });
  const isUsed = ({ name }) => region.some(({ code }) => !code.startsWith(`${name}.`) && contains(code, name) && !/\blen\(|print\(|np\./.test(code));
  const generated = region.flatMap((line) =>
    /(?:\b|_)(?:G|net_?G|gen\w*|generator)\b\s*\(|\w*gen(?:erator)?\w*\(/i.test(line.value) ? line.targets.map((name) => ({ line, name })) : []);
  const judged = ({ name }) => region.some(({ code }) =>
    new RegExp(`(?:\\bD|net_?D|disc\\w*|critic\\w*|model_?D)\\s*\\([^()]*\\b${name}\\b(?!\\.detach)`, "i").test(code));
  const steps = region.filter(({ code }) => /\.step\(/.test(code) && !/sched|env\.|scaler\.update/.test(code));
  const between = (line, first, last) => region.indexOf(first) < region.indexOf(line) && region.indexOf(line) < region.indexOf(last);
  const roles = backwards.filter(({ code }) => /actor|policy|critic|value/i.test(code));

  return {
    loop: loop ? [{ line: loop }] : [],
    failing: [{ line: failing }],
    state: region.flatMap((line) => {
      const names = handedOn(line).filter((name) => carried.has(name) && !name.startsWith("self."));
      if (loop) return names.length ? [stateOf(line, names)] : [];
      const earlier = region.slice(0, Math.max(0, region.indexOf(backwards[0])));
      const [name] = namesIn(/\w\([^,()]*,(.*)\)/.exec(line.value)?.[1] ?? "").filter((other) => assigned(other, earlier).some(({ targets }) => targets.length > 1));
      return name && region.indexOf(line) > region.indexOf(backwards[0]) && !detached(name) ? [stateOf(line, [name])] : [];
    }),
    module_state: lines.flatMap((line) => {
      const names = handedOn(line).filter((name) => name.startsWith("self."));
      return names.length && !CUT.test(line.value) ? [stateOf(line, names)] : [];
    }),
    once: !loop ? [] : outside.flatMap((line) =>
      line.targets
        .filter((name) => graph.has(name) && !receivers.includes(name) && !assigned(name, region).length)
        .filter((name) => !CUT.test(line.value) && !/Parameter\(|requires_grad/.test(line.code) && /[(*+@-]/.test(line.value))
        .filter((name) => !/no_grad|inference/.test(blockAround(lines, line, /^with /)?.code ?? ""))
        .filter((name) => region.some(({ code }) => new RegExp(`(?<![\\w.])${name}(?![\\w(])`).test(code)))
        .map((name) => ({ line, name }))),
    total: sums.map((line) => ({ line, name: line.targets[0] })).filter(({ name }) => inBackward(name)),
    kept: [
      ...sums.map((line) => ({ line, name: line.targets[0] })).filter(({ name }) => !inBackward(name)),
      ...appended.filter(({ line }) => isLoss(line.code) && !CUT.test(line.code)),
    ],
    list: appended.filter(isUsed),
    buffer: region.flatMap((line) => {
      const name = /^(\w+)\[.*\]$/.exec(line.left ?? "")?.[1] ?? /^(\w+)\.(?:copy_|index_copy_|scatter_)\(/.exec(line.code)?.[1];
      const tensor = assigned(name, outside).some(({ value }) => /torch\.\w+\(/.test(value));
      return loop && name && tensor && !assigned(name, region).length && !CUT.test(line.value) ? [{ line, name }] : [];
    }),
    two_losses: new Set(receivers).size > 1 ? backwards.map((line) => ({ line })) : [],
    gan: generated.filter(judged),
    actor_critic: new Set(roles.map(({ code }) => code)).size > 1 ? roles.map((line) => ({ line })) : [],
    same_loss: backwards.slice(1).flatMap((line, k) => {
      const [name, before] = [receivers[k + 1], receivers[k]];
      return name === before && !assigned(name, region).some((other) => between(other, backwards[k], line)) ? [{ line, name }] : [];
    }),
    same_loss_in_loop: !loop ? [] : backwards.flatMap((line, k) =>
      receivers[k] && !assigned(receivers[k], region).length ? assigned(receivers[k], outside).map((line) => ({ line, name: receivers[k] })) : []),
    step_between: steps.filter((line) => backwards.some((first) => backwards.some((last) => between(line, first, last)))).map((line) => ({ line })),
    write_in_place: lines.filter(writesInPlace).map((line) => ({ line })),
    cut: lines.filter(({ value, operator }) => operator === "=" && CUT.test(value) && namesIn(value).some((name) => graph.has(name) || isLoss(name))).map((line) => ({ line })),
  };
}
