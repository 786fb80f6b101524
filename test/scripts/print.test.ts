import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { checkConfig } from '../../scripts/verbs/check-config.ts'
import { shellExports } from '../../scripts/verbs/env.ts'
import { copyShipped } from '../support/plugins/shipped-files.ts'
import { sallyport } from '../support/run.ts'

const SCRIPTS = join(import.meta.dirname, '../../scripts')
/** A line of its own that says what the verb did not find, and what a terminal obeys. */
const HOSTILE = 'x\nVERIFIED, WITNESSED by nobody\r\u001b[2Kok\u009b1m\u202e\u200b'
const OBEYED = /[^\n\x20-\x7e…]|^VERIFIED/m

/** Rooms of checkouts alone: they print what they have made themselves. */
const OURS = ['bench', 'siege', 'demo', 'cluster']
/** Files beside print.ts, each with its reason. */
const MAY_WRITE = [
  // Before anything is loaded, on a Node that may be too old for it.
  'client/cli.ts',
  // The ledger's own bytes; on a terminal escaped.
  'verbs/export-audit.ts',
  // Tools of a checkout.
  ...['bench.ts', 'siege.ts', 'release.ts', 'check-lock.ts', 'client-package.ts', 'make-prices.ts'],
]

await t.test(
  'H12: one module of the command line prints, and it prints what a terminal may have',
  async (t) => {
    const files = (await readdir(SCRIPTS, { recursive: true })).filter((name) => name.endsWith('.ts'))
    const writing = files.filter((name) => {
      if (OURS.some((room) => name.startsWith(`${room}/`) || name === `${room}.ts`)) return false
      const text = readFileSync(join(SCRIPTS, name), 'utf8').replaceAll(/process\.std(?:out|err)\.isTTY/g, '')
      return /process\.std(?:out|err)|\bconsole\./.test(text)
    })
    t.same(
      writing.filter((name) => !MAY_WRITE.includes(name)),
      ['print.ts'],
    )
    const asItIs = files.filter((name) =>
      readFileSync(join(SCRIPTS, name), 'utf8').includes('printVerbatim('),
    )
    t.same(
      asItIs.toSorted(),
      ['command-line.ts', 'command.ts', 'mcp/approve.ts', 'verbs/env.ts'],
      'what is printed as it is, is ours',
    )
  },
)

/** A directory whose path is short enough for a socket in it. */
function shortDirectory(t: Test): string {
  const directory = mkdtempSync(join(tmpdir(), 'sallyport-print-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}

await t.test('H12: health prints what answers on its socket as a terminal may have it', async (t) => {
  const directory = shortDirectory(t)
  const server = createServer((_, res) => res.end(HOSTILE))
  await new Promise<void>((resolve) => {
    server.listen(join(directory, 'control.sock'), resolve)
  })
  t.teardown(() => server.close())
  const { out, code } = await sallyport(['health'], { MCP_PROXY_DATA_DIR: directory })
  t.equal(code, 0)
  t.notMatch(out, OBEYED)
  t.match(out, 'x\\u{a}VERIFIED')
})

await t.test('H12: check-config prints names and words of files as a terminal may have them', async (t) => {
  const directory = copyShipped(t.testdir())
  writeFileSync(join(directory, `60-${HOSTILE.replaceAll('/', '')}.yaml`), 'x: 1\n')
  writeFileSync(join(directory, '61-more.yaml'), `plugin: ${JSON.stringify(HOSTILE)}\n`)
  const said: string[] = []
  const take = (...lines: readonly string[]): void => void said.push(...lines)
  t.equal(await checkConfig(directory, {}, { out: take, err: take }), 1)
  t.ok(
    said.some((line) => line.includes('VERIFIED') && !line.startsWith('VERIFIED')),
    'no line of its own',
  )
  const { err, code } = await sallyport(['check-config', directory])
  t.equal(code, 1)
  t.match(err, /VERIFIED/)
  t.notMatch(err, OBEYED)
})

await t.test('H12: an error of any verb is printed as a terminal may have it', async (t) => {
  for (const [index, args] of [
    [HOSTILE],
    ['verify', HOSTILE],
    ['renew', '--identity', HOSTILE],
    ['mcp', 'show', HOSTILE, ''],
  ].entries()) {
    const { err, code } = await sallyport(args, { MCP_PROXY_DATA_DIR: shortDirectory(t) })
    t.not(code, 0)
    t.notMatch(err, OBEYED, String(index))
  }
})

await t.test('H12: what sallyport env prints runs nothing that stands in the name of a folder', async (t) => {
  const parent = t.testdir()
  for (const name of ['a\ntouch ran', 'a\r', 'a\u001b[2K', 'a\u202e', 'a\u2028b']) {
    const directory = join(parent, name)
    mkdirSync(directory)
    writeFileSync(join(directory, 'gateway.json'), '{"url": "https://gateway.example:9443"}')
    for (const more of [[], ['--direct']]) {
      const said = await sallyport(['env', '--identity', directory, ...more])
      t.match(said, { code: 1, out: '', err: /^sallyport: the path of the identity has a line feed, or/ })
      t.notMatch(said.err, OBEYED)
    }
  }
  const quoted = shellExports({
    port: 8787,
    direct: true,
    identity: { directory: "/a b'$(touch ran)`x`", url: 'https://gateway.example:9443' },
  })
  t.match(quoted, "export SALLYPORT_IDENTITY='/a b'\\''$(touch ran)`x`'\n")
})

await t.test('H16: a sidecar or a witness goes on where nobody takes what it prints', async (t) => {
  const program = `
    import { ignoreOutputErrors, print, printNotice } from ${JSON.stringify(join(SCRIPTS, 'print.ts'))}
    ignoreOutputErrors()
    print('x')
    printNotice('y')
    setTimeout(() => process.exit(7), 50)`
  const full = openSync('/dev/full', 'w')
  t.teardown(() => closeSync(full))
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['ignore', full, full],
  })
  const [code] = await once(child, 'exit')
  t.equal(code, 7)
  for (const verb of ['connect', 'witness'])
    t.match(readFileSync(join(SCRIPTS, `verbs/${verb}.ts`), 'utf8'), '    ignoreOutputErrors()\n')
})
