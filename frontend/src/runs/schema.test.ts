import { expect, test } from "vitest";
import { fieldError, fieldsOf, rangeText, type JsonSchema } from "./schema";

const schema: JsonSchema = {
  type: "object",
  $defs: { Order: { enum: ["size", "benefit"], type: "string", title: "Order" } },
  properties: {
    method: { const: "annealing", type: "string" },
    chains: { type: "integer", title: "Chains", description: "Independent chains", minimum: 1, maximum: 64, default: 2 },
    cooling: { type: "number", exclusiveMinimum: 0, exclusiveMaximum: 1, default: 0.9 },
    limit: { anyOf: [{ type: "integer", minimum: 1 }, { type: "null" }], default: null },
    order: { $ref: "#/$defs/Order", default: "size" },
    quick: { type: "boolean", default: false },
  },
};

test("it makes a field of each property but the constant", () => {
  const fields = fieldsOf(schema, { chains: 4 });
  expect(fields.map(({ name, kind }) => [name, kind])).toEqual([
    ["chains", "integer"],
    ["cooling", "number"],
    ["limit", "integer"],
    ["order", "choice"],
    ["quick", "boolean"],
  ]);
  expect(fields.map(({ initial }) => initial)).toEqual([4, 0.9, null, "size", false]);
  expect(fields[3]!.choices).toEqual(["size", "benefit"]);
});

test("it says what is wrong with a value", () => {
  const [chains, cooling, limit] = fieldsOf(schema, {});
  expect(fieldError(chains!, 2)).toBeNull();
  expect(fieldError(chains!, 0)).toBe("At least 1.");
  expect(fieldError(chains!, 65)).toBe("At most 64.");
  expect(fieldError(chains!, 2.5)).toBe("This must be a whole number.");
  expect(fieldError(chains!, null)).toBe("This is needed.");
  expect(fieldError(cooling!, 1)).toBe("Less than 1.");
  expect(fieldError(limit!, null)).toBeNull();
  expect(rangeText(cooling!)).toBe("above 0 below 1");
});
