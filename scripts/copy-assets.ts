// node scripts/copy-assets.ts [FOLDER]: puts beside the compiled files (default dist) what pages load, which nothing compiles.
import { cpSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')
const ASSETS = 'proxy/dashboard/assets'

const [, , folder = join(ROOT, 'dist')] = process.argv
cpSync(join(ROOT, ASSETS), join(folder, ASSETS), { recursive: true })
