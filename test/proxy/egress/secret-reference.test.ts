import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import {
  checkSecretReference,
  isSecretReference,
  SecretReferenceError,
  secretReader,
} from '../../../proxy/egress/secret-reference.ts'

await t.test('docs/protocol.md#secret-references: a secret is named, not stored', async (t) => {
  const secrets = join(t.testdir({ secrets: { open: 'from-a-file\n' } }), 'secrets')
  await writeFile(join(secrets, 'private'), 'x\n', { mode: 0o600 })
  const read = secretReader({ MCP_SECRET_A: 'from-the-environment', MCP_SECRET_EMPTY: '' }, secrets)
  t.equal(await read('env:MCP_SECRET_A'), 'from-the-environment')
  t.equal(await read(`file:${secrets}/private`), 'x')
  for (const bad of ['env:MCP_SECRET_EMPTY', 'env:MCP_SECRET_MISSING', `file:${secrets}/none`]) {
    await t.rejects(read(bad), bad)
  }
})

await t.test('D4 what is no secret of an MCP server is not read, whatever leads to it', async (t) => {
  const root = t.testdir({ secrets: {}, 'secrets-of-others': {}, data: { ca: {} } })
  const secrets = join(root, 'secrets')
  const key = join(root, 'data/ca/root.key.sealed')
  for (const path of [key, join(root, 'secrets-of-others/key')]) await writeFile(path, 'key', { mode: 0o600 })
  await symlink(key, join(secrets, 'link'))
  await symlink(join(root, 'data'), join(secrets, 'way'))
  await symlink('/proc/self', join(secrets, 'self'))
  const env = {
    OPENAI_API_KEY: 'k',
    AWS_SECRET_ACCESS_KEY: 'k',
    MCP_PROXY_ADMIN_SECRET: 'k',
    MCP_SECRET_: 'k',
  }
  const read = secretReader(env, secrets)
  const variables = Object.keys(env).map((name) => `env:${name}`)
  const files = [
    key,
    `${secrets}/link`,
    `${secrets}/way/ca/root.key.sealed`,
    `${secrets}/self/environ`,
    `${root}/secrets-of-others/key`,
    '/proc/self/environ',
  ].map((path) => `file:${path}`)
  for (const reference of [...variables, ...files]) {
    await t.rejects(read(reference), SecretReferenceError, reference)
    await t.rejects(checkSecretReference(reference, secrets), SecretReferenceError, `before: ${reference}`)
  }
  for (const reference of [
    ...[
      '',
      'MCP_SECRET_A',
      'env:',
      'env:mcp_secret_a',
      'env:MCP_SECRET_A\n',
      'env: MCP_SECRET_A',
      'env:constructor',
    ],
    ...[
      'file:',
      'file:x',
      `file:${secrets}`,
      `file:${secrets}/`,
      `file:${secrets}/../data/ca/root.key.sealed`,
    ],
    ...[`file:${secrets}/./a`, `file:${secrets}//a`, `file:${secrets}/a\0b`, `file://${secrets}/a`],
  ]) {
    await t.rejects(read(reference), SecretReferenceError, JSON.stringify(reference))
    await t.rejects(checkSecretReference(reference, secrets), SecretReferenceError, JSON.stringify(reference))
  }
})

await t.test('a file may be named before it is there, and its directory by a link', async (t) => {
  const root = t.testdir({})
  await checkSecretReference(`file:${root}/secrets/later`, join(root, 'secrets'))
  await mkdir(join(root, 'really'))
  await symlink(join(root, 'really'), join(root, 'secrets'))
  await writeFile(join(root, 'really/a'), 'x', { mode: 0o600 })
  // As Kubernetes mounts secrets: what is named is a link within the directory.
  await symlink(join(root, 'really/a'), join(root, 'really/b'))
  for (const name of ['a', 'b']) {
    await checkSecretReference(`file:${root}/secrets/${name}`, join(root, 'secrets'))
    t.equal(await secretReader({}, join(root, 'secrets'))(`file:${root}/secrets/${name}`), 'x')
  }
  t.ok(isSecretReference(`env:MCP_SECRET_${'A'.repeat(117)}`))
  t.notOk(isSecretReference(`env:MCP_SECRET_${'A'.repeat(118)}`))
})
