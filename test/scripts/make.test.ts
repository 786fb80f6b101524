import { spawnSync } from 'node:child_process'
import { chmodSync, copyFileSync, mkdirSync, utimesSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import t, { type Test } from 'tap'
import { without } from '../certs/openssl.ts'

const ROOT = join(import.meta.dirname, '../..')

/** Runs `make start` where npm has installed everything but a Node, and the machine's own is of this version. */
function makeStart(t: Test, version: string) {
  const root = t.testdir({
    bin: { node: `#!/bin/sh\n[ "$1" = --version ] && echo v${version} || echo started "$@"\n` },
  })
  chmodSync(join(root, 'bin/node'), 0o755)
  for (const file of ['Makefile', 'package.json', 'package-lock.json'])
    copyFileSync(join(ROOT, file), join(root, file))
  const installed = join(root, 'node_modules/.package-lock.json')
  mkdirSync(join(root, 'node_modules'))
  writeFileSync(installed, '{}')
  // Newer than what it was made from, as after npm ci.
  const later = Date.now() / 1000 + 60
  utimesSync(installed, later, later)
  const PATH = [join(root, 'bin'), process.env.PATH].join(delimiter)
  return spawnSync('make', ['start'], { cwd: root, encoding: 'utf8', env: { PATH } })
}

const skip = without('make')

t.test("where npm brings no Node, the machine's own serves if it is new enough", { skip }, async (t) => {
  for (const version of ['24.21.0', '24.100.1', '25.0.0', '100.0.0']) {
    t.match(makeStart(t, version), { status: 0, stdout: /^started proxy\/main\.ts$/m }, version)
  }
  for (const version of ['24.20.9', '24.3.0', '22.99.0', '4.30.0', '0.12.0']) {
    const { status, stdout, stderr } = makeStart(t, version)
    t.equal(status, 2, version)
    t.notMatch(stdout, /started/, `${version}: nothing runs`)
    t.match(
      stderr,
      `Node 24.21 or newer is needed, this is ${version}: install it from https://nodejs.org (npm ci`,
    )
  }
})
