const properties = (count: number, schema: (i: number) => object): object =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`property_${i}`, schema(i)]))

const tool = (inputSchema: object, more: object = {}): string =>
  JSON.stringify([{ name: 'tool', description: 'A tool.', inputSchema, ...more }])

/** Of a definition that is costly to compile there is a new one for each of so many tries. */
const TRIES = [0, 1, 2, 3]

/** The tools of hostile MCP servers, JSON text, by the name of the server. */
export const DEFINITIONS: Readonly<Record<string, () => string>> = {
  ...Object.fromEntries(TRIES.map((again) => [`h-numbers-${again}`, () => tool(numbers(again))])),
  'h-small': () => tool({ type: 'object' }),
  // Within every limit, and costly to compile and to judge by.
  'h-schema': () =>
    tool({
      type: 'object',
      properties: {
        text: { type: 'string' },
        list: { type: 'array', items: { type: ['object', 'integer'] } },
        ...properties(950, (i) => ({
          type: 'string',
          minLength: 1,
          maxLength: 100 + i,
          description: 'One.',
        })),
      },
    }),
  'h-unique': () => tool({ type: 'object', properties: { list: { type: 'array', uniqueItems: true } } }),
  'h-choices': () =>
    tool({
      type: 'object',
      properties: {
        list: { items: { oneOf: Array.from({ length: 300 }, (_, i) => ({ type: 'integer', minimum: i })) } },
      },
    }),
  'h-search': () =>
    tool({ type: 'object', properties: { list: { items: { type: 'string', pattern: '(a*b*c*d*)+$' } } } }),
  'h-deep': () => tool(deep(60)),
  'h-unions': () =>
    tool({
      type: 'object',
      anyOf: Array.from({ length: 300 }, (_, i) => ({ properties: properties(3, () => ({ const: i })) })),
    }),
  'h-patterns': () =>
    tool({
      type: 'object',
      properties: properties(200, (i) => ({ type: 'string', pattern: `^(a|aa)+${i}$` })),
    }),
  'h-enums': () =>
    tool({ type: 'object', properties: { a: { enum: Array.from({ length: 20_000 }, (_, i) => `v${i}`) } } }),
  'h-refs': () =>
    tool({
      type: 'object',
      properties: properties(400, (i) => ({ $ref: `#/$defs/property_${(i * 7) % 400}` })),
      $defs: properties(400, () => ({ type: 'object', additionalProperties: { type: 'integer' } })),
    }),
  'h-long': () => tool({ type: 'object' }, { description: 'a'.repeat(2_000_000) }),
  'h-names': () => tool({ type: 'object' }, { _meta: properties(90_000, () => ({})) }),
  'h-tools': () =>
    JSON.stringify(
      Array.from({ length: 5_000 }, (_, i) => ({ name: `t${i}`, inputSchema: { type: 'object' } })),
    ),
  'h-wide-tools': () =>
    JSON.stringify(
      Array.from({ length: 100 }, (_, i) => ({
        name: `t${i}`,
        inputSchema: { type: 'object', properties: properties(300, () => ({ type: 'string' })) },
      })),
    ),
}

function numbers(again: number): object {
  const number = (i: number): object => ({ type: 'number', minimum: -i, maximum: 1e9 + i, multipleOf: 0.5 })
  return { type: 'object', title: `again ${again}`, properties: properties(980, number) }
}

function deep(levels: number): object {
  return levels === 0
    ? { type: 'string' }
    : { type: 'object', properties: { a: deep(levels - 1), b: { type: 'string' } } }
}
