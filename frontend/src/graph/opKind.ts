/** What an opcode does, coarsely: the colour of its box. */
export const OP_KINDS = ["contraction", "fusion", "elementwise", "reduction", "movement", "control", "collective", "source", "group"] as const;

export type OpKind = (typeof OP_KINDS)[number];

export const OP_KIND_TITLES: Record<OpKind, string> = {
  contraction: "matrix product, convolution, custom call",
  fusion: "fusion",
  elementwise: "elementwise",
  reduction: "reduction, sort",
  movement: "moves or reshapes data",
  control: "loop, branch, call",
  collective: "communication",
  source: "parameter, constant",
  group: "scope or block (opens)",
};

const KIND_OF: Record<string, OpKind> = {};
const lists: [OpKind, string][] = [
  ["contraction", "dot convolution custom-call fft triangular-solve cholesky ragged-dot scaled-dot"],
  ["fusion", "fusion"],
  ["reduction", "reduce reduce-window select-and-scatter sort topk reduce-precision batch-norm-training batch-norm-inference batch-norm-grad"],
  [
    "movement",
    "copy copy-start copy-done transpose reshape bitcast bitcast-convert slice dynamic-slice dynamic-update-slice concatenate pad " +
      "gather scatter reverse broadcast tuple get-tuple-element dynamic-reshape set-dimension-size get-dimension-size opt-barrier",
  ],
  ["control", "while conditional call async-start async-update async-done map domain after-all add-dependency"],
  [
    "collective",
    "all-reduce all-gather all-to-all reduce-scatter collective-permute collective-broadcast all-reduce-start all-reduce-done " +
      "all-gather-start all-gather-done collective-permute-start collective-permute-done ragged-all-to-all send send-done recv " +
      "recv-done infeed outfeed partition-id replica-id",
  ],
  ["source", "parameter constant iota rng rng-bit-generator rng-get-and-update-state"],
];
for (const [kind, names] of lists) for (const name of names.split(" ")) KIND_OF[name] = kind;

export function opKind(op: string): OpKind {
  return KIND_OF[op] ?? "elementwise";
}
