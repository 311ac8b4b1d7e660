// Facts about a pasted script, read from its text: each a list of `{ line, name }`, empty where it does not
// hold.  They suggest answers to the guide's questions; none of them is a proof.

const NAME = /(?<![\w.])(?:self\.)?[A-Za-z_]\w*(?!\w|\s*=[^=])/g;
const LOOP = /^(?:async )?(?:for|while)\b/;
const BACKWARD = /\.(?:manual_)?backward\(|autograd\.grad\(/;
const CUT = /\.item\(|\.numpy\(|\.data\b|\.detach\(|\.tolist\(|\btorch\.(?:tensor|Tensor)\(|(?<!\.)\bfloat\(/;
// A module is created by a class that is none of these; a name like these is a module.
const MODULE = /^\s*(?:[\w.]+\.)?(?!\w*(?:Data|Optim|Adam|SGD|RMS|LR|Loader|Scaler|Loss)\w*\()[A-Z]\w+\(/;
const NETWORK = /model|net|encoder|decoder|critic|actor|policy|generator|discriminator|rnn|lstm|gru|cell|backbone/i;
const GENERATOR = /(?:\b|_)(?:G|net_?G|gen\w*)\s*\(/i;
const DISCRIMINATOR = /(?:\bD|net_?D|disc\w*|critic\w*)\s*\(([^()]*)\)/i;
const NO_GRAPH = /no_grad\(|set_grad_enabled\(False|inference_mode\(/;
const LOSS = /loss|criterion|cost|err(?!or\b)|output|pred|logits/i;
const WRITE =
  /^(?!.*(?:loss|total|count|correct|step|epoch|acc|size|init\.|clip_grad|requires_grad_))(?:[^"']*\w\[[^"']*\] *[-+*/]?= |\w+ *[-+*/]= *(?![\d.]+$)|.*\.[a-z]\w*[a-z\d]_\()/;
// A method that stores a computed value.
const STORE = /^self\.\w+ = (?!(?:None|True|False)$)(?=.*[A-Za-z])/;
// A network, by the name of its loss.
const ROLE = /\b(?!value$)\w*(?:actor|policy|critic|value)\w*/;
const WITHIN = /inplace\s*=\s*True/;

const asFacts = (lines) => lines.map((line) => ({ line }));
const named = (lines, nameOf) => lines.map((line) => ({ line, name: nameOf(line) })).filter(({ name }) => name);
const namesIn = (code = "") => code.match(NAME) ?? [];
const isArgument = (name, code) => new RegExp(`\\w\\(.*(?<![\\w.])${name}(?![\\w(])`).test(code);

// Logical lines: an open bracket continues a line; strings and comments are left out of `code`.
function readLines(text) {
  const lines = [];
  let open = 0;
  text = text.replace(/("""|''')[^]*?\1/g, (quoted) => `""${"\n".repeat(quoted.split("\n").length - 1)}`);
  text.split("\n").forEach((full, index) => {
    const raw = full.replace(/^(?:>>>|\.\.\.) /, "").replaceAll("\t", "    ");
    const code = raw
      .replace(/(["'])(?:\\.|(?!\1).)*\1/g, '""')
      .replace(/#.*/, "")
      .trim();
    const shown = raw.replace(/\s#.*/, "").trim();
    if (open > 0) lines.at(-1).code += ` ${code}`;
    else if (code) lines.push({ number: index + 1, indent: raw.search(/\S/), code, text: shown });
    open = Math.max(0, open + code.split(/[([{]/).length - code.split(/[)\]}]/).length);
  });
  return lines.map((line) => ({ ...line, ...assignment(line.code) }));
}

// What a line assigns: the text on the left, the names among it, the operator and the value.
function assignment(code) {
  const header = /^(?:async )?for (.+?) in (.+):/.exec(code);
  if (header) return { left: "", targets: namesIn(header[1]), value: header[2], operator: "for" };
  const flat = code.replace(/\[[^\]]*\]|\([^()]*\)/g, (group) => "_".repeat(group.length));
  const [, left, operator] = /^([^=(]*?)\s*([-+*/@|]?=)(?!=)/.exec(flat) ?? [];
  if (!operator || /[!<>]$/.test(left)) return { left: "", targets: [], value: code, operator: "" };
  const source = code.slice(0, left.length);
  const targets = source.includes("[") ? [] : namesIn(source);
  return { left: source, targets, value: code.slice(flat.indexOf(operator, left.length) + operator.length), operator };
}

// The lines below a header that are indented further.
function bodyOf(lines, header) {
  const start = lines.findIndex(({ number }) => number === header.number) + 1;
  const length = lines.slice(start).findIndex(({ indent }) => indent <= header.indent);
  return lines.slice(start, length < 0 ? undefined : start + length);
}

const includes = (lines, line) => lines.some(({ number }) => number === line.number);

// The header of the innermost such block around a line.
function headerOf(lines, line, pattern) {
  let { indent } = line;
  return lines.findLast((other) => {
    const isAround = other.number < line.number && other.indent < indent;
    if (isAround) indent = other.indent;
    return isAround && pattern.test(other.code);
  });
}

// Names whose value has a graph: results of modules, and what was computed from leaves that require grad.
function namesWithGraph(lines) {
  const [modules, leaves, results] = [new Set(), new Set(), new Set()];
  for (const { code, targets, value, operator } of lines) {
    const names = namesIn(value);
    const calls = names.some((name) => value.includes(`${name}(`) && (modules.has(name) || NETWORK.test(name)));
    let kind = calls || names.some((name) => leaves.has(name) || results.has(name)) ? results : new Set();
    if (operator !== "=" || CUT.test(value) || /parameters\(|state_dict|optim/i.test(value)) kind = new Set();
    else if (/requires_grad_?(?:\(| *= *)(?:True|\))|nn\.Parameter\(/.test(code)) kind = leaves;
    else if (MODULE.test(value)) kind = modules;
    targets.forEach((name) => kind.add(name));
  }
  return results;
}

// The names that an iteration of a loop reads before it assigns them, and assigns without a cut.
function carriedNames(iteration, loop, isAssigned) {
  const [written, carried] = [new Set(loop?.targets), new Set()];
  for (const { value, targets, operator } of iteration) {
    for (const name of [...namesIn(value), ...(/^.=$/.test(operator) ? targets : [])]) {
      if (!written.has(name) && isAssigned(name)) carried.add(name);
    }
    targets.forEach((name) => written.add(name));
  }
  const cuts = (name) => new RegExp(`\\b${name}\\.(?:detach|data)|\\b${name}\\b.*=.*(?:detach|repackage)`);
  return new Set([...carried].filter((name) => !iteration.some(({ code }) => cuts(name).test(code))));
}

// The lines that write into a tensor after an operation used it; where none does, all that write into one.
function writesIn(lines) {
  const modules = lines.flatMap(({ targets, value }) => (MODULE.test(value) && WITHIN.test(value) ? targets : []));
  const layer = new RegExp(`\\b(?:${[...modules, `F\\.\\w+(?=.*${WITHIN.source})`].join("|")})\\((\\w+)[,)]`);
  // A name that starts as a number counts something.
  const counters = new Set(lines.flatMap(({ targets, value }) => (/^\s*-?[\d.]+$/.test(value) ? targets : [])));
  const writes = ({ code }) => WRITE.test(code) && !counters.has(/^(?:self\.)?\w+/.exec(code)?.[0]);
  const written = (line) => layer.exec(line.code)?.[1] ?? (writes(line) && /^(?:self\.)?\w+/.exec(line.code)?.[0]);
  const stale = lines.filter((line, index) => {
    const name = written(line);
    const since = lines.findLastIndex((each, k) => k < index && [written(each), ...each.targets].includes(name));
    const uses = ({ value }) => isArgument(name, value) || (/[*/@]/.test(value) && namesIn(value).includes(name));
    return name && lines.slice(since + 1, index).some(uses);
  });
  const layers = lines.filter(({ code }) => WITHIN.test(code) || code.includes("max_norm"));
  return {
    layers: asFacts(!stale.length || stale.some(({ code }) => layer.test(code)) ? layers : []),
    writes: asFacts((stale.length ? stale : lines).filter(writes)),
  };
}

function factsOf(text, failingText, inNotebook) {
  const lines = readLines(text);
  const failing =
    lines.find((line) => line.text === failingText) ??
    lines.findLast(({ code }) => BACKWARD.test(code)) ??
    lines.findLast((line) => headerOf(lines, line, LOOP) && !headerOf(lines, line, /^def /));
  if (!failing) return writesIn(lines);
  const script = lines.filter((line) => !headerOf(lines, line, /^(?:(?:async )?def|class) /));
  const loop = headerOf(lines, failing, LOOP);
  const header = loop ?? headerOf(lines, failing, /^(?:async )?def /);
  const iteration = header ? bodyOf(lines, header) : script;
  const outside = lines.filter((line) => !includes(iteration, line));
  const assigns = (name, where) => where.some(({ targets }) => targets.includes(name));
  const carried = carriedNames(iteration, loop, (name) => assigns(name, iteration));
  const graph = namesWithGraph(lines);
  const index = (line) => iteration.indexOf(line);

  const isAlternative = (line, earlier) => {
    const [branch, first] = [headerOf(lines, line, /^(?:else|elif)\b/), headerOf(lines, earlier, /^(?:if|elif)\b/)];
    return first && first.indent === branch?.indent && earlier.number < branch.number && first.number < branch.number;
  };
  const backwards = iteration
    .filter(({ code }) => BACKWARD.test(code))
    .filter((line, k, all) => k === 0 || !isAlternative(line, all[k - 1]));
  const receivers = backwards.map(
    ({ text }) => /(?<!\w\([\w.]*)([\w.]+(?:\[[^\]]*\])?)\)?\.backward\(/.exec(text)?.[1] ?? "",
  );
  const variable = (receiver) => receiver.split("[")[0];
  const isTuple = (name) =>
    /LSTM/.test(text) || outside.some(({ targets, value }) => targets.includes(name) && /^\s*\(.*,/.test(value));
  const repeated = backwards.slice(1).filter((line, k) => {
    const [name, since] = [receivers[k + 1], iteration.slice(index(backwards[k]), index(line))];
    return name === receivers[k] && !assigns(variable(name), since);
  });
  const stale = backwards.filter((line, k) => loop && receivers[k] && !assigns(variable(receivers[k]), iteration));
  const repeating = loop ? iteration : [];
  const sums = named(repeating, ({ targets: [name], operator, value }) => {
    const adds = operator === "+=" || value.trim().startsWith(`${name} +`);
    return adds && carried.has(name) && LOSS.test(value) && !CUT.test(value) && name;
  });
  const lists = named(repeating, ({ code }) => {
    const name = /^([\w.]+)\.(?:append|extend)\(/.exec(code)?.[1];
    const cleared = iteration.some((each) => {
      const clears = each.code.startsWith(`${name}.clear(`) || each.code.startsWith(`del ${name}`);
      const condition = headerOf(lines, each, /^if /);
      return clears && (!condition || includes(bodyOf(lines, condition), backwards[0]));
    });
    return !cleared && !assigns(name, iteration) && name;
  });

  // A state goes into a call and comes back from it; without a loop, a later call receives it.
  const states = iteration.flatMap((line) => {
    const pair = /\(\s*\w+\s*,\s*\w+\s*\)/.exec(line.left)?.[0];
    const [name] = line.targets.filter((target) => carried.has(target) && isArgument(target, line.value));
    const earlier = iteration.slice(0, index(backwards[0])).filter(({ targets }) => targets.length > 1);
    const [, later] = /\w\([^,()]*,\s*(\w+)\)/.exec(line.value) ?? [];
    if (!loop && index(line) > index(backwards[0]) && assigns(later, earlier))
      return [{ line, name: later, tuple: isTuple(later) }];
    return loop && name ? [{ line, name: pair ?? name, tuple: Boolean(pair) || isTuple(name) }] : [];
  });
  // Computed before the loop and read in it; or in an attribute that nothing else assigns, and read in a method.
  const isKept = (name) =>
    name.startsWith("self.") && lines.filter(({ targets }) => targets.includes(name)).length === 1;
  const isRead = (name) =>
    (isKept(name) ? lines : repeating).some(
      ({ code }) => namesIn(code).includes(name) && !new RegExp(`\\b${name}[.(]`).test(code),
    );
  const computedOnce = named(outside, (line) => {
    const isRecorded = () => !/no_grad|inference/.test(headerOf(lines, line, /^with /)?.code);
    const isOld = (name) => graph.has(name) && !receivers.includes(name) && !assigns(name, iteration) && isRead(name);
    return /[(*+@-]/.test(line.value) && !CUT.test(line.value) && isRecorded() && line.targets.find(isOld);
  });
  // A state that a method of the module computes from its old value.
  const kept = named(lines, (line) => {
    const counts = /^\s*[\w.]+ *[-+] *\d+$/.test(line.value) || CUT.test(line.value) || /\(1[.0]* *-/.test(line.value);
    const isCreated = () => /__init__/.test(headerOf(lines, line, /^def /)?.code);
    const isOwn = (name) => name.startsWith("self.") && namesIn(line.value).includes(name);
    return !counts && line.targets.find((name) => isOwn(name) && !isCreated());
  }).map((fact) => ({ ...fact, tuple: isTuple(fact.name) }));

  // What both losses are computed from, and what multiplies a log-probability in one of them.
  const losses = iteration.filter(({ targets }) => targets.some((name) => receivers.includes(name)));
  const isWeight = (name) => {
    const product = new RegExp(`log_?p.*\\* *${name}\\b(?!\\.detach)|\\b${name} *\\* *-?\\w*log_?p`);
    const readers = losses.filter(({ targets, value }) => !targets.includes(name) && namesIn(value).includes(name));
    return readers.length > 1 && readers.some(({ value }) => product.test(value));
  };
  const weights = named(iteration, ({ targets }) => targets.find(isWeight));
  const inputs = backwards.flatMap(({ code }) => namesIn(/autograd\.grad\([^,]+,\s*\[?([\w., ]+)/.exec(code)?.[1]));
  const fed = namesIn(loop?.value).some((name) => graph.has(name)); // data of the loop has a graph
  const isData = (name) => (fed && graph.has(name)) || /^(?:advantages?|returns)$/.test(name);
  const leading = iteration.slice(0, index(backwards.at(-1)));
  const judgedIn = ({ code }) => namesIn(DISCRIMINATOR.exec(code)?.[1]);
  const isJudged = (name) => iteration.some((line) => judgedIn(line).includes(name));
  const generated = named(
    iteration,
    ({ targets, value }) => GENERATOR.test(value) && targets.slice(0, 1).find(isJudged),
  );
  const steps = iteration.filter(
    (line) => /\.step\(/.test(line.code) && index(line) > index(backwards[0]) && index(line) < index(backwards.at(-1)),
  );
  const rerun = inNotebook && !loop && backwards.length === 1 && backwards[0].indent === 0 ? backwards : [];
  const isTrained = (name) => new RegExp(`(?:optim|Adam|SGD|RMS).*\\b${name}\\.parameters\\(`, "i").test(text);
  const stored = lines.filter(({ code, value }) => STORE.test(code) && !CUT.test(value));
  const cuts = lines.filter(({ value, operator }) => operator === "=" && CUT.test(value));
  const unrecorded = lines.filter(({ code }) => NO_GRAPH.test(code));
  const trained = unrecorded
    .filter((header) => includes(iteration, header))
    .flatMap((header) => bodyOf(lines, header))
    .filter(({ value }) => namesIn(value).some((name) => value.includes(`${name}(`) && isTrained(name)));

  return {
    ...writesIn(lines),
    state: [...states.filter(({ name }) => !name.startsWith("self.")), ...kept],
    kept_state: kept,
    once: computedOnce,
    data: asFacts(loop ? outside.filter(({ targets }) => targets.some(isData)) : []).slice(0, 1),
    total: sums.filter(({ name }) => receivers.includes(name)),
    kept: [
      ...sums.filter(({ name }) => !receivers.includes(name)),
      ...lists.filter(({ line }) => LOSS.test(line.code) && !CUT.test(line.code)).map(({ line }) => ({ line })),
    ],
    list: lists.filter(({ name }) =>
      iteration.some(({ code }) => isArgument(name, code) && !/len\(|print\(|np\./.test(code)),
    ),
    two_losses:
      new Set(receivers).size > 1 || (loop && backwards.length > 1 && !repeated.length) ? asFacts(backwards) : [],
    advantage: weights,
    own_networks: weights.length ? [] : asFacts(backwards.filter((_, k) => ROLE.test(receivers[k]))),
    gan: generated,
    judged: asFacts(leading.filter((line) => generated.some(({ name }) => judgedIn(line).includes(name)))),
    same_loss: asFacts([...repeated, ...stale, ...rerun]),
    rerun: asFacts(rerun),
    same_loss_in_loop: asFacts(stale),
    step_between: asFacts(steps),
    receiver: asFacts(iteration.filter(({ targets }) => receivers.some((name) => targets.includes(variable(name))))),
    attributes: asFacts(stored.filter((line) => !/__init__/.test(headerOf(lines, line, /^def /)?.code ?? "__init__"))),
    trained_without_graph: asFacts([...trained, ...unrecorded.filter(({ code }) => code.startsWith("@"))]),
    without_graph: trained.length ? [] : asFacts(unrecorded),
    cut: asFacts(cuts.filter(({ value }) => namesIn(value).some((name) => graph.has(name) || LOSS.test(name)))),
    cut_input: asFacts(cuts.filter(({ value }) => inputs.some((name) => new RegExp(`\\b${name}\\.`).test(value)))),
  };
}
