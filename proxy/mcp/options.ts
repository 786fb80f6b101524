import { z } from 'zod'
import { parseAllowedHosts } from './http-get/hop.ts'

const milliseconds = (fallback: number, most: number, description: string) =>
  z.int().min(1).max(most).default(fallback).describe(`${description} ms. Default ${fallback}.`)

const MIB = 1024 * 1024

/** A host as `http.get` itself reads it. */
const hostPattern = z.string().check(({ value, issues }) => {
  try {
    parseAllowedHosts([value])
  } catch (error) {
    issues.push({
      code: 'custom',
      input: value,
      message: error instanceof Error ? error.message : 'is no host',
    })
  }
})

export const mcpOptions = z.strictObject({
  enforce_tools_call: z
    .boolean()
    .default(false)
    .describe(
      'true: every tools/call also requires the capability mcp.tools.call, in addition to that of the tool. Default false.',
    ),
  list: z
    .enum(['bound', 'callable'])
    .default('bound')
    .describe(
      'What tools/list shows. bound: the tools of every MCP server that the caller is bound to. callable: of these only ' +
        'those whose capability it holds. Default bound.',
    ),
  allowed_origins: z
    .array(
      z
        .string()
        .regex(/^https?:\/\/[^\s/?#@*\\]+$/, 'must be one origin in full, such as https://app.example.com')
        .refine((url) => URL.canParse(url), 'is no origin'),
    )
    .default([])
    .describe(
      'Origins of browser applications that may call and read the answers, in addition to those of ' +
        'MCP_PROXY_PUBLIC_URLS. Each in full: scheme, host and port; no *. Default none.',
    ),
  connect_timeout_ms: milliseconds(5_000, 60_000, 'How long connecting to an MCP server may take.'),
  answer_timeout_ms: milliseconds(
    600_000,
    3_600_000,
    'How long an MCP server may be silent: before the head of its answer, and between two pieces of it.',
  ),
  total_timeout_ms: milliseconds(3_600_000, 86_400_000, 'How long one call may take in all.'),
  max_message_bytes: z
    .int()
    .min(1024)
    .max(256 * MIB)
    .default(16 * MIB)
    .describe(
      'The largest message an MCP server may send. Bytes. Default 16 MiB. A larger one ends the call.',
    ),
  max_answer_bytes: z
    .int()
    .min(1024)
    .max(1024 * MIB)
    .default(64 * MIB)
    .describe('The most that an MCP server may stream for one call. Bytes. Default 64 MiB.'),
  refresh_interval_s: z
    .int()
    .min(0)
    .max(86_400)
    .default(300)
    .describe(
      'How often the tools of each resource are read again, to find definitions that have changed. Seconds. Default 300; ' +
        '0: only when an operator asks.',
    ),
  http_get: z
    .strictObject({
      enabled: z.boolean().default(true).describe('false: the tool does not exist. Default true.'),
      allowed_hosts: z
        .array(hostPattern)
        .default([])
        .describe('Hosts that may be fetched: a name, *.name, or name:port. Default: every public host.'),
      timeout_ms: milliseconds(10_000, 60_000, 'How long one fetch may take in all, redirects included.'),
      max_bytes: z
        .int()
        .min(1)
        .max(16 * MIB)
        .default(MIB)
        .describe('How much of a body is returned. Bytes. Default 1 MiB.'),
    })
    .prefault({})
    .describe('The built-in tool http.get. It reaches public addresses only, whatever is set here.'),
})

export type McpOptions = z.output<typeof mcpOptions>

export interface McpUpstreamLimits {
  /** The time until the connection stands. ms. */
  readonly connectMs: number
  /** The time from then until the head of the answer, and between two pieces of it. ms. */
  readonly answerMs: number
  /** For one request and its answer. ms. */
  readonly totalMs: number
  /** The size of one message. Bytes. */
  readonly maxMessageBytes: number
  /** The size of one whole answer, and of all pages of a list of tools. Bytes. */
  readonly maxAnswerBytes: number
}

export const limitsOf = (options: McpOptions): McpUpstreamLimits => ({
  connectMs: options.connect_timeout_ms,
  answerMs: options.answer_timeout_ms,
  totalMs: options.total_timeout_ms,
  maxMessageBytes: options.max_message_bytes,
  maxAnswerBytes: options.max_answer_bytes,
})
