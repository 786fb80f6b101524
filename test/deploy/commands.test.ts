import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  utimesSync,
} from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { without } from '../support/certs/openssl.ts'
import { ROOT } from '../support/deploy/package-tree.ts'
import { scratch } from '../support/gateway.ts'

t.setTimeout(240_000)

/** One command of a page: all its lines. */
interface PageCommand {
  readonly at: string
  readonly text: string
}

/** Reads the commands of a page's shell blocks: continued lines, loops and here documents are one each. */
function commandsOf(page: string): readonly PageCommand[] {
  const text = readFileSync(join(ROOT, page), 'utf8')
  return [...text.matchAll(/^```sh\n([\s\S]*?)^```/gm)].flatMap(({ 1: block = '', index }) => {
    let line = text.slice(0, index).split('\n').length
    const found: PageCommand[] = []
    let lines: string[] = []
    for (const next of block.trimEnd().split('\n')) {
      line += 1
      if (lines.length === 0 && /^\s*(?:#.*)?$/.test(next)) continue
      lines.push(next)
      const [, end] = /<<'(\w+)'/.exec(lines[0] ?? '') ?? []
      if (end !== undefined ? next !== end : next.endsWith('\\') || !isWhole(lines)) continue
      found.push({ at: `${page}:${line - lines.length + 1}`, text: lines.join('\n') })
      lines = []
    }
    return found
  })
}

/** Tells whether no quotation and no loop is open. */
const isWhole = (lines: readonly string[]): boolean =>
  spawnSync('bash', ['-n', '-c', lines.join('\n')], { stdio: 'ignore' }).status === 0

/** A command that cannot run here, and why; its words are still read by the shell. */
const ELSEWHERE: readonly (readonly [RegExp, string])[] = [
  [/\b(?:docker|kubectl|helm) /, 'it needs a container engine or a cluster'],
  [/\bsudo(?:edit)? |systemctl/, 'it installs on the machine'],
  [/\bpsql |owner\.url/, 'it needs a PostgreSQL of its own'],
  [/\bclaude\b|node app\.mjs/, 'it runs a program of the reader'],
  [/^make (?:demo|cluster)\b/, 'tests of its own run it (test/scripts/demo, test/scripts/verbs/cluster)'],
  [/^make mcp /, 'it needs an MCP server on the internet (test/scripts/mcp)'],
  [/req_…/, 'it needs the id of a call of the reader'],
  [/\/opt\/sallyport|\/backup|\/var\/lib|restored|gate\.example\.com/, 'it needs the reader’s deployment'],
]

/** Programs that stay, and the line by which they say where. */
const STAYING: Readonly<Record<string, RegExp>> = {
  'make start': /"msg":"ready","url":"(https:[^"]+)"/,
  'make connect': /(http:\/\/127\.0\.0\.1:\d+)/,
}

/** A clone with its packages installed, on a machine with an old Node and an empty home. */
async function freshClone(t: Test) {
  const root = await scratch(t)
  chmodSync(root, 0o755)
  const [clone, home] = [join(root, 'sallyport'), join(root, 'home')]
  const tracked = execFileSync('git', ['ls-files', '-co', '--exclude-standard', ':!test'], {
    cwd: ROOT,
    encoding: 'utf8',
  })
  for (const file of tracked
    .trim()
    .split('\n')
    .filter((file) => existsSync(join(ROOT, file)))) {
    mkdirSync(dirname(join(clone, file)), { recursive: true })
    copyFileSync(join(ROOT, file), join(clone, file))
  }
  // As `npm ci` has left them, which takes a minute: newer than what names them.
  symlinkSync(join(ROOT, 'node_modules'), join(clone, 'node_modules'))
  for (const file of ['package.json', 'package-lock.json']) utimesSync(join(clone, file), 1, 1)
  mkdirSync(home)
  const PATH = (process.env.PATH ?? '').split(delimiter).filter((path) => !path.includes('node_modules'))
  const env = { PATH: PATH.join(delimiter), HOME: home, MCP_PROXY_LISTEN: '127.0.0.1:0' }
  const git = (...args: readonly string[]): string =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {
      cwd: clone,
      env,
      encoding: 'utf8',
    })
  git('init', '--quiet')
  git('add', '--all')
  git('commit', '--quiet', '--message', 'a clone')
  return { clone, env, git }
}

const skip = without('make') || without('bash') || without('git') || without('curl')

/** Programs that stand in no PATH of a machine with an old Node. `node app.mjs` is the reader's own. */
const NOWHERE = /^(?:\w+=\S* )*(?:exec |sudo )?(?:node (?!app\.mjs|dist\/verify)|npx |npm run |sallyport )/m

t.test('no page has a command that begins with a program which is not there', async (t) => {
  const pages = readdirSync(join(ROOT, 'docs')).filter((file) => file.endsWith('.md'))
  for (const page of ['README.md', ...pages.map((file) => `docs/${file}`)])
    for (const { at, text } of commandsOf(page)) t.notMatch(text, NOWHERE, `${at}: ${text}`)
})

t.test(
  'commands of README and docs/deploying.md run as they stand, with an old Node',
  { skip },
  async (t) => {
    const { clone, env, git } = await freshClone(t)
    // What the reader has put in by now, by the words of the pages.
    const known = new Map<string, string>([['PORT=9543', 'PORT=0']])
    const filled = (text: string): string =>
      [...known].reduce((said, [word, value]) => said.replaceAll(word, value), text)
    let set = ''
    for (const { at, text } of [...commandsOf('README.md'), ...commandsOf('docs/deploying.md')]) {
      const read = spawnSync('bash', ['-n', '-c', text], { encoding: 'utf8' })
      t.match(read, { status: 0, stderr: '' }, `${at} is a command`)
      const [, elsewhere] = ELSEWHERE.find(([words]) => words.test(text)) ?? []
      if (elsewhere !== undefined) {
        t.comment(`${at} is read and not run: ${elsewhere}`)
        const [dry] = /^make [a-z-]+/.exec(text) ?? /\.\/sallyport [a-z-]+/.exec(text) ?? []
        const tried = dry?.replace(/^make/, 'make -n').replace(/^\..*/, '$& --help')
        if (tried !== undefined)
          t.equal(spawnSync('bash', ['-c', tried], { cwd: clone, env }).status, 0, `${at}: ${tried}`)
        continue
      }
      const command = filled(text)
      const [staying, says] = Object.entries(STAYING).find(([name]) => command.startsWith(name)) ?? []
      if (staying !== undefined && says !== undefined) {
        const child = spawn(
          'bash',
          ['-c', command.replace(/(?: *#.*)?$/, staying === 'make connect' ? ' PORT=0' : '')],
          {
            ...{ cwd: clone, env, detached: true, stdio: ['ignore', 'pipe', 'inherit'] },
          },
        )
        const ended = once(child, 'close')
        t.teardown(() => {
          if (child.pid !== undefined) process.kill(-child.pid, 'SIGTERM')
          return ended
        })
        for await (const line of createInterface(child.stdout)) {
          const [, url] = says.exec(line) ?? []
          if (url === undefined) continue
          known.set(staying === 'make start' ? 'https://localhost:9443' : 'http://127.0.0.1:8787', url)
          break
        }
        child.stdout.resume()
        t.pass(`${at} stays`)
        continue
      }
      // Some set what others use.
      if (/^(?:export )?[A-Z_]+='?[^ ]*(?:$|; )|^[A-Z]='/.test(command)) {
        set += `${command}\n`
        continue
      }
      const ran = spawnSync('bash', ['-c', `${set}${command}`], { cwd: clone, env, encoding: 'utf8' })
      t.equal(ran.status, 0, `${at}: ${ran.stderr}`)
      if (command.startsWith('curl'))
        t.doesNotThrow(() => ran.stdout.startsWith('data:') || JSON.parse(ran.stdout || '{}'), at)
      if (command.startsWith('make admin-secret'))
        known.set('X-Admin-Secret: …', `X-Admin-Secret: ${ran.stdout.trim()}`)
      if (command.startsWith('make evidence')) known.set('VKEY', `'${keyIn(join(clone, 'evidence.zip'))}'`)
    }
    t.equal(git('status', '--porcelain'), '', 'git ignores what they have written')
  },
)

/** The log's key, as it is in a pack. */
const keyIn = (pack: string): string =>
  execFileSync(
    'python3',
    ['-c', 'import sys, zipfile; print(zipfile.ZipFile(sys.argv[1]).read("key.txt").decode())', pack],
    { encoding: 'utf8' },
  ).trim()
