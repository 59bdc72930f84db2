import type { GraphModel } from "./document";

/**
 * Nodes whose name or opcode contains every word of the query, best first:
 * exact names, then exact opcodes, then names that start with it, then the rest in document order.
 * A word `op:fusion` looks at opcodes only, `name:dot` at names only.
 */
export function searchNodes(model: GraphModel, query: string, limit = 500): { hits: number[]; total: number } {
  const words = query.trim().toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return { hits: [], total: 0 };
  const whole = words.join(" ");
  const ranked: [number[], number[], number[], number[]] = [[], [], [], []];
  for (let node = 0; node < model.nodeCount; node++) {
    const name = model.nodeName[node]!.toLowerCase();
    const op = model.op[node]!.toLowerCase();
    if (!words.every((word) => matches(word, name, op))) continue;
    const rank = name === whole ? 0 : op === whole ? 1 : name.startsWith(whole) ? 2 : 3;
    ranked[rank].push(node);
  }
  const all = ranked.flat();
  return { hits: all.slice(0, limit), total: all.length };
}

function matches(word: string, name: string, op: string): boolean {
  if (word.startsWith("op:")) return op.includes(word.slice(3));
  if (word.startsWith("name:")) return name.includes(word.slice(5));
  return name.includes(word) || op.includes(word);
}
