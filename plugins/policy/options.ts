import { z } from 'zod'

export const POLICY_ENGINES = ['opa-http', 'opa-wasm'] as const
export const ARGUMENT_MODES = ['values', 'digests', 'none'] as const
export const DEFAULT_ENTRYPOINT = 'sallyport/allow'

const text = z.string().min(1).max(4096)
const orNull = text.nullable().default(null)

/** A policy's input as an operator writes it for a sample; docs/policy.md explains each member. */
const sampleInput = z.strictObject({
  version: z.literal(1).default(1),
  request_id: text.default('req_sample'),
  time: z.iso.datetime().default('2026-01-01T00:00:00.000Z').describe('RFC 3339, in UTC.'),
  principal: z.strictObject({
    id: text.describe('Such as acme::bot.'),
    type: z.enum(['agent', 'user', 'workload']).default('agent'),
    capabilities: z.array(text).max(64).default([]),
  }),
  action: text.describe('Such as egress_llm_chat or mcp_tools_call.'),
  required_capability: text.describe('The capability that the gate has just found.'),
  method: orNull,
  tool: orNull,
  resource: orNull,
  model: orNull,
  stream: z.boolean().default(false),
  arguments: z.record(z.string(), z.unknown()).nullable().default(null),
  arguments_sha256: orNull,
  proof: z.strictObject({ jkt: text }).nullable().default(null),
  remote_address: text.default('127.0.0.1'),
})

const sample = z.strictObject({
  input: sampleInput.describe('What the policy is asked. A member that is left out is null, or its default.'),
  allow: z.boolean().describe('What the policy must answer.'),
})

const url = z
  .string()
  .refine(isPolicyUrl, 'must be an http or https URL without credentials or fragment')
  .transform(decisionUrl)
  .optional()
  .describe(
    'opa-http: where the Open Policy Agent answers, e.g. http://127.0.0.1:8181/v1/data/sallyport/allow. Over http:// ' +
      'anybody in between can allow every call: use it only for an agent on this machine.',
  )

const token = z
  .string()
  .max(4096)
  .regex(/^[\x21-\x7e]+$/, 'must be printable ASCII without spaces')
  .optional()
  // biome-ignore lint/suspicious/noTemplateCurlyInString: what the operator writes
  .describe('opa-http: sent as Authorization: Bearer. Usually ${file:/path}. Default: none is sent.')

const bundle = text
  .optional()
  .describe(
    'opa-wasm: a policy.wasm, or a bundle .tar.gz with /policy.wasm and /data.json, as `opa build -t wasm` makes ' +
      'them. Relative to this directory.',
  )

const entrypoint = z
  .string()
  .max(256)
  .regex(/^[A-Za-z_][A-Za-z0-9_]*(\/[A-Za-z_][A-Za-z0-9_]*)*$/, 'must be a path such as sallyport/allow')
  .optional()
  .describe(`opa-wasm: the rule that decides, as named to \`opa build -e\`. Default ${DEFAULT_ENTRYPOINT}.`)

const data = text
  .optional()
  .describe(
    "opa-wasm: a JSON file that the policy reads as data, in place of the bundle's own. Default: none.",
  )

function isPolicyUrl(given: string): boolean {
  const parsed = URL.parse(given)
  if (!parsed || (parsed.protocol !== 'https:' && parsed.protocol !== 'http:')) return false
  return !parsed.username && !parsed.password && !given.includes('#')
}

/** Writes a URL without slashes at its end: to the Data API of OPA they are one more, empty name. */
function decisionUrl(given: string): string {
  const { origin, pathname, search } = new URL(given)
  return origin + pathname.replace(/(?<=^\/v1\/data\/.*[^/])\/+$/, '') + search
}

const OF_ENGINE = { 'opa-http': ['url', 'token'], 'opa-wasm': ['bundle', 'entrypoint', 'data'] } as const

/** The options of the `policy` plugin file. Does NOT check that the policy is there, or that it answers. */
export const policyOptions = z
  .strictObject({
    engine: z
      .enum(POLICY_ENGINES)
      .describe(
        'opa-http asks an Open Policy Agent over its Data API; opa-wasm runs Rego that was compiled to WebAssembly.',
      ),
    url,
    token,
    bundle,
    entrypoint,
    data,
    deadline_ms: z
      .int()
      .min(1)
      .max(10_000)
      .default(500)
      .describe(
        'How long one answer may take, waiting included, before the call is refused. Milliseconds. Default 500.',
      ),
    arguments: z
      .enum(ARGUMENT_MODES)
      .default('digests')
      .describe(
        'What the policy sees of the arguments of a tool: their values, their SHA-256, or nothing. Default digests.',
      ),
    samples: z
      .array(sample)
      .max(1000)
      .default([])
      .describe('Tried whenever this file is read. A sample that is answered differently stops the boot.'),
  })
  .superRefine((options, context) => {
    const { engine, samples } = options
    const other = engine === 'opa-http' ? 'opa-wasm' : 'opa-http'
    const complain = (path: PropertyKey[], message: string) =>
      context.addIssue({ code: 'custom', path, message })
    const [needed] = OF_ENGINE[engine]
    if (options[needed] === undefined) complain([needed], 'is missing')
    for (const name of OF_ENGINE[other]) {
      if (options[name] !== undefined) complain([name], `is an option of engine ${other} only`)
    }
    for (const [index, { input }] of samples.entries()) {
      const never = neverGiven(options.arguments, input)
      if (never) {
        complain(
          ['samples', index, 'input', never],
          `is never given to the policy with arguments: ${options.arguments}`,
        )
      }
    }
  })

/** Refuses samples that no call can look like: they prove nothing. */
function neverGiven(
  mode: (typeof ARGUMENT_MODES)[number],
  input: z.output<typeof sampleInput>,
): 'arguments' | 'arguments_sha256' | null {
  if (mode !== 'values' && input.arguments !== null) return 'arguments'
  return mode === 'none' && input.arguments_sha256 !== null ? 'arguments_sha256' : null
}

export type PolicyOptions = z.output<typeof policyOptions>
export type PolicySample = PolicyOptions['samples'][number]
