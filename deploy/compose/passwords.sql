-- Run once behind roles.sql, when compose makes the database: the roles log in by what compose/secrets.sh has made.
\set owner `cat /run/secrets/database_owner`
\set gateway `cat /run/secrets/database_gateway`
alter role sallyport_owner password :'owner';
alter role sallyport_gateway password :'gateway';
