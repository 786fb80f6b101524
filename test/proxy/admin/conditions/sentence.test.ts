import fc from 'fast-check'
import t from 'tap'
import { compileGlob } from '../../../../db/support/glob.ts'
import { sentenceOf } from '../../../../proxy/admin/conditions/sentence.ts'

t.test('docs/rehearsal.md#expectations: the two forms of a sentence, and nothing else', async (t) => {
  t.match(sentenceOf('acme::deploy may call github.create_pr'), {
    who: 'acme::deploy',
    may: true,
    at: { kind: 'tool', glob: 'github.create_pr' },
  })
  t.match(sentenceOf('acme::user::* may  not use model claude-opus-*'), {
    who: 'acme::user::*',
    may: false,
    at: { kind: 'model', glob: 'claude-opus-*' },
  })
  for (const text of [
    '',
    'acme::a may',
    'acme::a may call',
    'acme::a may call x y',
    'acme::a must call x',
    'acme::a may use x',
    'acme::a may not use x',
    'may call x',
    'acme::a\u0000 may call x',
    'acme::a may call x\u00e9',
    'acme::é may call x',
  ])
    t.equal(sentenceOf(text), null, text)
})

t.test('a star stands for any text, and everything else for itself', async (t) => {
  const texts = fc.string({ unit: fc.constantFrom('a', 'b', '.', '*'), maxLength: 8 })
  const names = fc.string({ unit: fc.constantFrom('a', 'b', '.'), maxLength: 12 })
  fc.assert(
    fc.property(texts, names, (glob, name) => {
      const parts = glob.split('*').map((part) => part.replaceAll('.', '\\.'))
      return compileGlob(glob)(name) === new RegExp(`^${parts.join('.*')}$`, 's').test(name)
    }),
    { numRuns: 5_000 },
  )
  const long = compileGlob(`${'a*'.repeat(100)}b`)
  t.equal(long('a'.repeat(100_000)), false, 'whatever the glob, a name is read once')
})
