// Says beside each chapter on the path how many of its questions this browser has answers to.

function stored(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null; // no storage here, or not ours
  }
}

function keys() {
  try {
    return Object.keys(localStorage);
  } catch {
    return [];
  }
}

function answered(page) {
  const inPlayers = Object.keys(stored("gradtrace.answers") ?? {}).filter((key) => key.startsWith(`${page}#`));
  const quizzes = keys().filter((key) => key.startsWith(`backward-twice.quiz:${page}#`));
  const inQuiz = quizzes.flatMap((key) => stored(key) ?? []).filter((choice) => choice !== null);
  return inPlayers.length + inQuiz.length;
}

const pages = new Map(Object.entries(QUESTIONS).map(([address, asked]) => [new URL(address, location).pathname, asked]));
for (const link of document.querySelectorAll(".path a")) {
  const asked = pages.get(link.pathname);
  const done = asked ? answered(link.pathname) : 0;
  if (!done) continue;
  const note = document.createElement("span");
  note.className = "progress-note";
  note.textContent = done >= asked ? ` ✓ all ${asked} answered` : ` ${done} of ${asked} answered`;
  link.after(note);
}
