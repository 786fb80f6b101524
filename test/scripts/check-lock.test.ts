import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { lockFaults } from '../../scripts/check-lock.ts'

const ROOT = join(import.meta.dirname, '../..')
const integrity = `sha512-${'A'.repeat(86)}==`
const lock = (packages: object): string => JSON.stringify({ lockfileVersion: 3, packages })

t.test('each package of the lock file has its digest, and names no registry', async (t) => {
  t.strictSame(lockFaults(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')), [])
})

t.test('a package without a digest, with a weak one or with a place is named', async (t) => {
  t.strictSame(lockFaults(lock({ '': { name: 'own' }, 'node_modules/a': { integrity } })), [])
  const bad = [{}, { integrity: '' }, { integrity: 'sha1-AAAA' }, { integrity: 1 }, null]
  for (const entry of bad) t.match(lockFaults(lock({ 'node_modules/a': entry })), [/^node_modules\/a /])
  const placed = { integrity, resolved: 'https://registry.example/a.tgz' }
  t.match(lockFaults(lock({ 'node_modules/a': placed, 'node_modules/b': {} })), [/resolved/, /integrity/])
  for (const text of ['{}', '[]', '{"lockfileVersion":2,"packages":{}}'])
    t.throws(() => lockFaults(text), text)
})

t.test('make lint fails with it', async (t) => {
  const cwd = t.testdir({})
  const check = () =>
    spawnSync(process.execPath, [join(ROOT, 'scripts/check-lock.ts')], { cwd, encoding: 'utf8' })
  writeFileSync(join(cwd, 'package-lock.json'), lock({ 'node_modules/a': {} }))
  t.match(check(), { status: 1, stderr: /node_modules\/a has no SHA-512 digest/ })
  writeFileSync(join(cwd, 'package-lock.json'), lock({ 'node_modules/a': { integrity } }))
  t.match(check(), { status: 0, stderr: '' })
  t.match(
    readFileSync(join(ROOT, 'Makefile'), 'utf8'),
    /^lint:.*\n\t.* lint-code lint-types\n\nlint-code:.*\n(\t.*\n)*\texec node scripts\/check-lock\.ts\n/m,
  )
})
