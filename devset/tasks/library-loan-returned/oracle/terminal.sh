# step: Find the loan
sqlite3 ~/Documents/library.sqlite "select * from loans where book = 'Ulysses'"

# step: Mark it as returned
sqlite3 ~/Documents/library.sqlite "update loans set returned = 1 where id = 17"

