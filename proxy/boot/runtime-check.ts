// Imported before anything else, on whatever Node there is: this file imports nothing.

/** The facts of a process that are checked; `process` has them. */
export interface ProcessRuntime {
  readonly versions: { readonly node: string }
  readonly env: Readonly<Record<string, string | undefined>>
  readonly execArgv: readonly string[]
  readonly platform: string
  readonly arch: string
}

// Older ones resume a TLS 1.3 session of a client without certificate as authorized (docs/threats.md#t6).
const OLDEST_NODE = [24, 21, 0] as const

// Node reads _ as - in its options.
const INSECURE_PARSER = /(?:^|[\s"'])--insecure[-_]http[-_]parser(?![-_\w])/

// Every spelling by which Node opens its debugger, or says where. An argument is seen by the user who starts
// the process, and wanted (make dev ARGS=--inspect); in the environment it comes from elsewhere, and nobody
// sees it.
const DEBUGGER = /(?:^|[\s"'])(--(?:inspect|debug)(?:[-_][-_a-z]*)?)(?![-_\w])/
// Every option by which Node writes the keys of connections, its whole memory, or its environment to a file.
const WRITES_SECRETS =
  /(?:^|[\s"'])(--(?:tls[-_]keylog|heapsnapshot[-_][-_a-z]+|report[-_](?:on[-_][-_a-z]+|uncaught[-_]exception)))(?![-_\w])/

/**
 * Throws an Error with one sentence if this process must not serve: a Node that is too old, certificate
 * checks switched off, the lenient HTTP parser or, by the environment, the debugger or a file of secrets
 * switched on (docs/threats.md#threat-36, #f-39).
 */
export function refuseUnsafeRuntime(runtime: ProcessRuntime): void {
  const { versions, platform, arch } = runtime
  if (isOlder(versions.node, OLDEST_NODE)) {
    // The pinned Node is an optional dependency that npm installs where it can run (package.json).
    const cure =
      platform === 'linux' && ['x64', 'arm64'].includes(arch)
        ? 'run make start, which takes the pinned one'
        : 'install it from https://nodejs.org (npm ci brings one for Linux on x64 and arm64 only)'
    throw new Error(`Node ${OLDEST_NODE.join('.')} or newer is needed, this is ${versions.node}: ${cure}`)
  }
  refuseUnsafeSwitches(runtime)
}

/** Like {@link refuseUnsafeRuntime}, whatever the version. */
export function refuseUnsafeSwitches({ env, execArgv }: Pick<ProcessRuntime, 'env' | 'execArgv'>): void {
  if (env.NODE_TLS_REJECT_UNAUTHORIZED === '0') {
    throw new Error('NODE_TLS_REJECT_UNAUTHORIZED=0 switches off every certificate check: unset it')
  }
  const options = readingsOf(env.NODE_OPTIONS ?? '')
  if ([...execArgv, ...options].some((text) => INSECURE_PARSER.test(text))) {
    throw new Error('--insecure-http-parser lets requests be smuggled past the gateway: remove it')
  }
  const [debug] = options.flatMap((text) => DEBUGGER.exec(text)?.[1] ?? [])
  if (debug !== undefined) {
    throw new Error(
      `${debug} in NODE_OPTIONS opens a debugger next to the keys, to every user of this machine: remove it (an argument of node itself is allowed, as in make dev ARGS=--inspect)`,
    )
  }
  const [written] = options.flatMap((text) => WRITES_SECRETS.exec(text)?.[1] ?? [])
  if (written !== undefined) {
    throw new Error(
      `${written} in NODE_OPTIONS writes keys and secrets to files: remove it (an argument of node itself is allowed)`,
    )
  }
}

/**
 * The text as written, and as Node reads it: quotes join the words between them, and a backslash there its
 * next letter.
 */
const readingsOf = (text: string): readonly string[] => [text, text.replaceAll(/["\\]/g, '')]

/** Tells whether a version of Node comes before the oldest that will do. */
export function isOlder(version: string, oldestNode: readonly number[]): boolean {
  const parts = version.split('.').map((part) => Number.parseInt(part, 10))
  for (const [index, oldest] of oldestNode.entries()) {
    const part = parts[index] ?? 0
    if (part !== oldest) return !(part > oldest)
  }
  return false
}
